// One message: what was said, how it came about, and what can be done with it.
import { useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';

import { copyText } from './app.js';
import { highlighted } from './highlight.js';
import { blocksOf, safeNodes } from './markdown.js';
import { Icon, IconButton, pure } from './parts.jsx';

const COPIED_MS = 1500;
const COLOURED_WHILE_GROWING = 8000;  // characters: longer code gets its colours when it is complete

export function CopyButton({ text, label = 'Copy' }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    await copyText(text());
    setCopied(true);
    setTimeout(() => setCopied(false), COPIED_MS);
  };
  return <IconButton icon={copied ? 'check' : 'copy'} label={copied ? 'Copied' : label} onClick={copy} />;
}

// Nodes that were made safe, in an element of their own.
function Safe({ html, as: Tag = 'div', ...rest }) {
  const place = useRef(null);
  // Before the page scrolls to the end of what it shows.
  useLayoutEffect(() => { place.current.replaceChildren(safeNodes(html)); }, [html]);
  return <Tag ref={place} {...rest} />;
}

const HtmlBlock = pure(({ block }) => <Safe html={block.html()} class="block" />);

const CodeBlock = pure(({ block, growing }) => {
  const html = highlighted(block.text, growing && block.text.length > COLOURED_WHILE_GROWING ? '' : block.language);
  return (
    <figure class="code" aria-label={block.language ? `Code in ${block.language}` : 'Code'}>
      <figcaption><span>{block.language || 'text'}</span><CopyButton text={() => block.text} label="Copy this code" /></figcaption>
      <pre tabIndex={0}><Safe as="code" html={html} /></pre>
    </figure>
  );
});

// Blocks whose text is as before stay as they are: a long answer grows at its end only.
function Markdown({ text, growing }) {
  const before = useRef(new Map());
  const blocks = useMemo(() => {
    const now = new Map();
    const made = blocksOf(text).map((block, i) => {
      const known = before.current.get(`${i} ${block.key}`) ?? block;
      now.set(`${i} ${block.key}`, known);
      return known;
    });
    before.current = now;
    return made;
  }, [text]);
  return (
    <div class="markdown">
      {blocks.map((block, i) => (block.type === 'code'
        ? <CodeBlock key={i} block={block} growing={growing && i === blocks.length - 1} />
        : <HtmlBlock key={i} block={block} />))}
    </div>
  );
}

const seconds = (ms) => (ms < 10_000 ? `${(ms / 1000).toFixed(1)} s` : `${Math.round(ms / 1000)} s`);

function Reasoning({ message }) {
  const thinking = message.state === 'streaming' && !message.content && !message.toolCalls?.length;
  const took = message.thoughtTo - message.thoughtFrom >= 100 ? ` for ${seconds(message.thoughtTo - message.thoughtFrom)}` : '';
  return (
    <details class="reasoning">
      <summary><Icon name="think" />{thinking ? <span class="shimmer">Thinking…</span> : `Thought${took}`}</summary>
      <div class="reasoning-text">{message.reasoning}</div>
    </details>
  );
}

function prettyArguments(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;  // still being written, or not JSON
  }
}

function ToolCalls({ message, open, onResults }) {
  const [results, setResults] = useState({});
  const calls = message.toolCalls;
  const send = (event) => {
    event.preventDefault();
    onResults(calls.map((call, i) => ({ toolCallId: call.id, content: results[i] ?? '' })));
  };
  return (
    <form class="calls" onSubmit={send}>
      {calls.map((call, i) => (
        <section class="call" key={i} aria-label={`Call of ${call.name}`}>
          <header><Icon name="tool" /><span>calls</span><code>{call.name || '…'}</code></header>
          {call.arguments && <pre tabIndex={0}><code>{prettyArguments(call.arguments)}</code></pre>}
          {open && (
            <label>
              <span>What it came to</span>
              <textarea
                rows={2}
                value={results[i] ?? ''}
                onInput={(e) => setResults({ ...results, [i]: e.currentTarget.value })}
                placeholder="This page runs no tools: give the result yourself."
              />
            </label>
          )}
        </section>
      ))}
      {open && <button type="submit" class="button">Send {calls.length === 1 ? 'the result' : 'the results'}</button>}
    </form>
  );
}

function Waiting({ progress }) {
  const left = progress && progress.total > 0 && progress.processed < progress.total;
  return (
    <p class="waiting">
      <span class="dots" aria-hidden="true"><i /><i /><i /></span>
      {left ? `Reading the prompt: ${Math.round((100 * progress.processed) / progress.total)} %` : 'Waiting for the first word'}
    </p>
  );
}

// What a person should know of how an answer ended, and what to do about it.
function Ending({ message, last, acts }) {
  if (message.state === 'error') {
    return (
      <div class="ending failed" role="alert">
        <p><strong>{message.error?.status === 401 ? 'The server refused the key.' : 'The answer failed.'}</strong> {message.error?.text}</p>
        <button type="button" class="button" onClick={() => acts.retry(message.id)}>Try again</button>
      </div>
    );
  }
  const stopped = message.state === 'stopped';
  if (!stopped && message.finish !== 'length') return null;
  return (
    <div class="ending">
      <p>{stopped ? 'Stopped.' : 'Cut off: the limit of tokens is reached.'}</p>
      {last && message.content && <button type="button" class="button" onClick={() => acts.resume(message.id)}>Write on</button>}
    </div>
  );
}

function Versions({ versions, id, acts }) {
  if (versions.length < 2) return null;
  const at = versions.indexOf(id);
  return (
    <span class="versions" role="group" aria-label="Versions of this message">
      <IconButton icon="left" label="Earlier version" disabled={at === 0} onClick={() => acts.showVersion(versions[at - 1])} />
      <span>{at + 1} of {versions.length}</span>
      <IconButton icon="right" label="Later version" disabled={at === versions.length - 1} onClick={() => acts.showVersion(versions[at + 1])} />
    </span>
  );
}

function Facts({ message }) {
  const { timings, usage } = message;
  if (!timings) return null;
  const facts = [];
  if (timings.predicted_n > 1 && timings.predicted_per_second > 0) facts.push(`${timings.predicted_per_second.toFixed(1)} tokens/s`);
  facts.push(`${(usage?.completion_tokens ?? timings.predicted_n).toLocaleString('en')} tokens`);
  if (timings.cache_n > 0) facts.push(`${timings.cache_n.toLocaleString('en')} of ${(timings.cache_n + timings.prompt_n).toLocaleString('en')} prompt tokens from the cache`);
  return <span class="facts">{facts.join(' · ')}</span>;
}

function Editor({ text, onSave, onCancel }) {
  const [value, setValue] = useState(text);
  const area = useRef(null);
  useLayoutEffect(() => {
    area.current.focus();
    area.current.setSelectionRange(text.length, text.length);
  }, []);
  return (
    <form class="editor" onSubmit={(e) => { e.preventDefault(); onSave(value); }}>
      <textarea
        ref={area}
        aria-label="Edit this message"
        value={value}
        rows={Math.min(12, value.split('\n').length + 1)}
        onInput={(e) => setValue(e.currentTarget.value)}
        onKeyDown={(e) => {
          if (e.key === 'Escape') { e.stopPropagation(); onCancel(); }
          if (e.key === 'Enter' && (e.ctrlKey || e.metaKey)) onSave(value);
        }}
      />
      <div class="row">
        <button type="submit" class="button primary" disabled={!value.trim()}>Send</button>
        <button type="button" class="button" onClick={onCancel}>Cancel</button>
      </div>
    </form>
  );
}

function UserMessage({ message, versions, busy, acts }) {
  const [editing, setEditing] = useState(false);
  if (editing) {
    return (
      <article class="message user" aria-label="You">
        <Editor text={message.content} onCancel={() => setEditing(false)} onSave={(text) => { setEditing(false); acts.edit(message.id, text); }} />
      </article>
    );
  }
  return (
    <article class="message user" aria-label="You">
      <div class="bubble">{message.content}</div>
      <footer class="row">
        <Versions versions={versions} id={message.id} acts={acts} />
        <IconButton icon="edit" label="Edit" disabled={busy} onClick={() => setEditing(true)} />
        <CopyButton text={() => message.content} />
      </footer>
    </article>
  );
}

function AssistantMessage({ message, versions, busy, last, acts }) {
  const growing = message.state === 'waiting' || message.state === 'streaming';
  const calls = message.toolCalls?.length > 0;
  return (
    <article class={`message assistant ${growing ? 'growing' : ''}`} aria-label="The model" aria-busy={growing} data-state={message.state}>
      {message.reasoning && <Reasoning message={message} />}
      {message.content && <Markdown text={message.content} growing={growing} />}
      {calls && <ToolCalls message={message} open={last && !growing} onResults={(results) => acts.giveResults(message.id, results)} />}
      {message.state === 'waiting' && <Waiting progress={message.progress} />}
      {message.state === 'done' && !message.content && !calls && <p class="quiet">The answer is empty.</p>}
      {!growing && <Ending message={message} last={last} acts={acts} />}
      {message.state === 'streaming' && <footer class="row"><Facts message={message} /></footer>}
      {!growing && (
        <footer class="row">
          <Versions versions={versions} id={message.id} acts={acts} />
          <CopyButton text={() => message.content ?? ''} />
          <IconButton icon="retry" label="Another answer" disabled={busy} onClick={() => acts.retry(message.id)} />
          <Facts message={message} />
        </footer>
      )}
    </article>
  );
}

const ToolMessage = ({ message }) => (
  <article class="message tool" aria-label="Result of a tool">
    <header><Icon name="tool" />came to</header>
    <pre tabIndex={0}><code>{message.content}</code></pre>
  </article>
);

const KINDS = { user: UserMessage, assistant: AssistantMessage, tool: ToolMessage };

// `versions`: their ids, joined so that equal lists are equal.
export const Message = pure(({ versions, ...rest }) => {
  const Kind = KINDS[rest.message.role];
  return <Kind versions={versions.split(' ')} {...rest} />;
});
