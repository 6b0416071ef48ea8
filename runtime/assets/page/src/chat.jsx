// The chat: messages of the shown branch, and the box to write in.
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';

import { branchOf, versionsOf } from './conversation.js';
import { Message } from './message.jsx';
import { Icon, IconButton, useApp } from './parts.jsx';

const NEAR_THE_END = 80;  // pixels: closer than this the page follows a growing answer

const EXAMPLES = [
  'What is the capital of Japan?',
  'Explain a mixture of experts in three sentences.',
  'Write a Python function that reverses a list.',
];

function Welcome({ app }) {
  const { props } = app.state.server;
  return (
    <div class="welcome">
      <h2>What shall we talk about?</h2>
      {props && <p class="quiet">{props.model_alias} · {props.default_generation_settings.n_ctx.toLocaleString('en')} tokens of context</p>}
      <ul>
        {EXAMPLES.map((text) => (
          <li key={text}><button type="button" class="button" onClick={() => app.send(text)}>{text}</button></li>
        ))}
      </ul>
    </div>
  );
}

// Asks for the key where the server wants one.
function KeyCard({ app }) {
  const [key, setKey] = useState('');
  const [remember, setRemember] = useState(app.state.settings.rememberKey);
  const { message } = app.state.server;
  return (
    <form class="card key-card" onSubmit={(e) => { e.preventDefault(); app.useKey(key.trim(), remember); }}>
      <h2>This server asks for an API key</h2>
      {message && <p class="failed" role="alert">{message}</p>}
      <label class="field">
        <span>API key</span>
        <input type="password" autocomplete="off" spellcheck={false} value={key} onInput={(e) => setKey(e.currentTarget.value)} />
      </label>
      <label class="choice">
        <input type="checkbox" checked={remember} onChange={(e) => setRemember(e.currentTarget.checked)} />
        <span>Keep it in this browser (otherwise: in this tab)</span>
      </label>
      <button type="submit" class="button primary" disabled={!key.trim()}>Use this key</button>
    </form>
  );
}

const STATUS = {
  loading: 'The model is loading; this page looks again on its own.',
  offline: 'The server cannot be reached; this page tries again on its own.',
};

function StatusLine({ server }) {
  if (server.status === 'loading' || server.status === 'offline') return <p class={`status ${server.status}`} role="status">{STATUS[server.status]}</p>;
  if (server.status === 'error') return <p class="status failed" role="status">{server.message}</p>;
  return null;
}

function Composer({ app, busy }) {
  const place = app.state.conversation?.id ?? '';
  const [text, show] = useState(app.drafts.get(place) ?? '');
  const area = useRef(null);
  const setText = (value) => {
    app.drafts.set(place, value);
    show(value);
  };
  useEffect(() => {
    if (matchMedia('(hover: hover)').matches) area.current.focus();
  }, []);
  useLayoutEffect(() => {  // as tall as its text, within what the style allows
    const { style } = area.current;
    style.height = 'auto';
    style.height = `${area.current.scrollHeight + 2}px`;
  }, [text]);
  const send = () => { if (app.send(text)) setText(''); };
  return (
    <form class="composer" onSubmit={(e) => { e.preventDefault(); send(); }}>
      <label class="hidden" for="composer">Message</label>
      <textarea
        id="composer"
        ref={area}
        rows={1}
        value={text}
        placeholder="Ask anything"
        enterkeyhint="send"
        onInput={(e) => setText(e.currentTarget.value)}
        onKeyDown={(e) => {
          if (e.key !== 'Enter' || e.shiftKey || e.isComposing) return;
          e.preventDefault();
          if (!busy) send();
        }}
      />
      {busy
        ? <IconButton icon="stop" label="Stop (Escape)" shown="Stop" class="stop" onClick={() => app.stop()} />
        : <IconButton icon="send" label="Send (Enter)" class="send" disabled={!text.trim()} onClick={send} />}
    </form>
  );
}

export function Chat() {
  const app = useApp();
  const { conversation, server, running, kept } = app.state;
  const busy = conversation !== null && running.has(conversation.id);
  const scroller = useRef(null);
  const follows = useRef(true);
  const [away, setAway] = useState(false);
  const branch = conversation ? branchOf(conversation) : [];

  const onScroll = () => {
    const { scrollTop, scrollHeight, clientHeight } = scroller.current;
    follows.current = scrollHeight - scrollTop - clientHeight < NEAR_THE_END;
    setAway(!follows.current);
  };
  const toEnd = () => {
    scroller.current.scrollTop = scroller.current.scrollHeight;
    follows.current = true;
    setAway(false);
  };
  useLayoutEffect(toEnd, [conversation?.id, branch.length]);
  useLayoutEffect(() => { if (follows.current) toEnd(); });

  return (
    <section class="chat" aria-label="Chat">
      <div class="scroller" ref={scroller} onScroll={onScroll}>
        <div class="column" role="log" aria-live="off" aria-label="Messages">
          {!kept && <p class="status" role="status">This browser keeps nothing for this page: conversations end with it.</p>}
          {branch.length === 0 && server.status !== 'key' && <Welcome app={app} />}
          {branch.map((message, i) => (
            <Message
              key={message.id}
              message={message}
              versions={versionsOf(conversation, message.id).map((m) => m.id).join(' ')}
              busy={busy}
              last={i === branch.length - 1}
              acts={app}
            />
          ))}
          {server.status === 'key' && <KeyCard app={app} />}
        </div>
      </div>
      <div class="foot">
        {away && <button type="button" class="button to-end" onClick={toEnd}><Icon name="down" />To the end</button>}
        <div class="column">
          <StatusLine server={server} />
          <Composer key={conversation?.id ?? ''} app={app} busy={busy} />
        </div>
      </div>
    </section>
  );
}
