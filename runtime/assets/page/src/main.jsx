// The page: the list of conversations beside the chat or the machine view, and the dialogs.
import { render } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';

import { App } from './app.js';
import { Chat } from './chat.jsx';
import { Confirm, Settings, Shortcuts } from './dialogs.jsx';
import { Machine } from './machine.jsx';
import { AppContext, Icon, IconButton, useApp } from './parts.jsx';

const NARROW = matchMedia('(max-width: 52rem)');

const DAY_MS = 86_400_000;
function ageOf(time) {
  const today = new Date().setHours(0, 0, 0, 0);
  if (time >= today) return 'Today';
  if (time >= today - DAY_MS) return 'Yesterday';
  return time >= today - 7 * DAY_MS ? 'Last seven days' : 'Earlier';
}

function Conversations({ app }) {
  const { summaries, conversation, running, view } = app.state;
  const ages = [...new Set(summaries.map((s) => ageOf(s.updated)))];
  if (summaries.length === 0) return <p class="quiet empty">Conversations will be listed here.</p>;
  return ages.map((age) => (
    <section key={age} aria-label={age}>
      <h2>{age}</h2>
      <ul>
        {summaries.filter((s) => ageOf(s.updated) === age).map((s) => (
          <li key={s.id}>
            <a href={`#/c/${s.id}`} aria-current={view === 'chat' && conversation?.id === s.id ? 'page' : undefined}>
              <span class="title">{s.title || 'Untitled'}</span>
              {running.has(s.id) && <span class="pulse" role="img" aria-label="answer on its way" />}
            </a>
          </li>
        ))}
      </ul>
    </section>
  ));
}

function Sidebar({ app }) {
  const { view, drawer } = app.state;
  return (
    <aside id="sidebar" class={drawer ? 'open' : ''} aria-label="Conversations">
      <header>
        <span class="brand">Bloomery</span>
        <IconButton icon="close" label="Close the list" class="only-narrow" onClick={() => app.set({ drawer: false })} />
      </header>
      <a class="button new" href="#/" onClick={() => app.set({ drawer: false })}><Icon name="plus" />New chat</a>
      <nav aria-label="Conversations"><Conversations app={app} /></nav>
      <footer>
        <a href="#/machine" aria-current={view === 'machine' ? 'page' : undefined}><Icon name="machine" />Machine</a>
        <button type="button" onClick={() => app.set({ dialog: 'settings', drawer: false })}><Icon name="settings" />Settings</button>
      </footer>
    </aside>
  );
}

function Title({ app, conversation }) {
  const [editing, setEditing] = useState(false);
  const dropped = useRef(false);  // by Escape: leaving the box must not save it then
  useEffect(() => setEditing(false), [conversation.id]);
  if (!editing) {
    return (
      <h1><button type="button" class="title" title="Rename" onClick={() => { dropped.current = false; setEditing(true); }}>{conversation.title || 'Untitled'}</button></h1>
    );
  }
  const save = (event) => {
    event.preventDefault();
    if (dropped.current) return;
    dropped.current = true;
    app.rename(new FormData(event.currentTarget).get('title'));
    setEditing(false);
  };
  return (
    <form class="rename" onSubmit={save}>
      <input
        name="title" aria-label="Title" defaultValue={conversation.title} ref={(e) => e?.focus()} maxLength={200}
        onBlur={(e) => e.currentTarget.form?.requestSubmit()}
        onKeyDown={(e) => { if (e.key === 'Escape') { e.stopPropagation(); dropped.current = true; setEditing(false); } }}
      />
    </form>
  );
}

const STATES = { connecting: 'connecting', ready: 'ready', loading: 'loading', offline: 'not reached', key: 'key needed', error: 'failed' };

function Header({ app }) {
  const { view, conversation, server } = app.state;
  const chat = view === 'chat';
  return (
    <header class="top">
      <IconButton icon="menu" label="Conversations" class="only-narrow" aria-controls="sidebar" aria-expanded={app.state.drawer} onClick={() => app.set({ drawer: true })} />
      {chat && conversation ? <Title app={app} conversation={conversation} /> : <h1>{chat ? 'New chat' : 'Machine'}</h1>}
      <span class={`server ${server.status}`} title={server.props?.model_alias}>{STATES[server.status]}</span>
      {chat && conversation && (
        <>
          <IconButton icon="download" label="Export this conversation" onClick={() => app.exportOne(conversation)} />
          <IconButton icon="trash" label="Delete this conversation" onClick={() => app.remove(conversation)} />
        </>
      )}
    </header>
  );
}

function Notice({ notice }) {
  return (
    <div class="notices" role="status">
      {notice && (
        <p class="notice">
          <span>{notice.text}</span>
          {notice.act && <button type="button" class="button" onClick={notice.act.run}>{notice.act.label}</button>}
        </p>
      )}
    </div>
  );
}

const writing = (target) => target.closest?.('input, textarea, select, [contenteditable]') !== null;

function onKeyDown(app, event) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey) return;
  const { dialog, drawer, conversation, running } = app.state;
  const act = (run) => {
    event.preventDefault();
    run();
  };
  if (event.key === 'Escape' && !dialog) {
    if (drawer) return act(() => app.set({ drawer: false }));
    if (conversation && running.has(conversation.id)) return act(() => app.stop());
  }
  if (dialog) return undefined;
  if (event.altKey) {
    if (event.code === 'KeyN') return act(() => app.newChat());
    if (event.code === 'KeyM') return act(() => app.go('/machine'));
    if (event.code === 'KeyS') return act(() => app.set({ dialog: 'settings' }));
    return undefined;
  }
  if (writing(event.target)) return undefined;
  if (event.key === '/') return act(() => document.getElementById('composer')?.focus());
  if (event.key === '?') return act(() => app.set({ dialog: 'shortcuts' }));
  return undefined;
}

function Page() {
  const app = useApp();
  const { view, dialog, drawer, notice, spoken, conversation } = app.state;
  useEffect(() => {
    const keys = (event) => onKeyDown(app, event);
    const wide = () => app.set({ drawer: false });
    document.addEventListener('keydown', keys);
    NARROW.addEventListener('change', wide);
    return () => {
      document.removeEventListener('keydown', keys);
      NARROW.removeEventListener('change', wide);
    };
  }, []);
  useEffect(() => {
    const name = view === 'machine' ? 'Machine' : conversation?.title;
    document.title = name ? `${name} · Bloomery` : 'Bloomery';
  }, [view, conversation?.title]);
  useEffect(() => {
    if (drawer) document.querySelector('#sidebar a, #sidebar button')?.focus();
  }, [drawer]);
  return (
    <>
      {view === 'chat' && (
        <a class="skip" href="#composer" onClick={(e) => { e.preventDefault(); document.getElementById('composer')?.focus(); }}>To the message box</a>
      )}
      <Sidebar app={app} />
      {drawer && <div class="shade" onClick={() => app.set({ drawer: false })} />}
      <main inert={drawer}>
        <Header app={app} />
        {view === 'machine' ? <Machine /> : <Chat />}
      </main>
      <Notice notice={notice} />
      <div class="hidden" role="status" aria-live="polite">{spoken}</div>
      {dialog === 'settings' && <Settings />}
      {dialog === 'shortcuts' && <Shortcuts />}
      {dialog?.confirm && <Confirm ask={dialog} />}
    </>
  );
}

const app = new App();
render(<AppContext.Provider value={app}><Page /></AppContext.Provider>, document.getElementById('app'));
app.start();
