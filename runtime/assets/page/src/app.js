// What the page is doing, and the acts that change it. Components show `state` and call the acts;
// only this file talks to the server about chats and to the store.
import { ApiError, getJson, streamChat } from './api.js';
import {
  IMPORT_BYTES_MAX, addMessage, asLoaded, branchOf, exportText, importText, joinDelta, newConversation, requestMessages,
  showVersion, titleFrom, updateMessage,
} from './conversation.js';
import { applyTheme, checked, hasSettings, loadKey, loadSettings, requestFields, saveKey, saveSettings } from './settings.js';
import { openStore } from './store.js';

const PAINT_MS = 40;       // between two looks at a growing answer
const SAVE_MS = 1000;      // between two saves of one
const STATUS_MS = 3000;    // between two looks at a server that is not ready
const HEALTH_MS = 15_000;  // and at one that is
const SPEAK_MS = 2500;     // between two pieces of an answer read aloud
const NOTICE_MS = 8000;

const wait = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

export class App {
  state = {
    view: 'chat',              // or 'machine'
    conversation: null,        // the shown one; null: a new one that nothing was said in
    summaries: [],
    running: new Set(),        // ids of conversations with an answer on its way
    server: { status: 'connecting', message: '', props: null },
    settings: loadSettings(),
    key: loadKey(),
    dialog: null,              // 'settings', 'shortcuts', {confirm}
    drawer: false,             // the list of conversations on a narrow page
    notice: null,              // {text, act?: {label, run}}
    spoken: '',                // for screen readers
    kept: true,                // whether conversations outlive the page
    ready: false,              // the store is open
  };

  #listeners = new Set();
  drafts = new Map();     // what was written and not sent, by conversation ('' for a new one)
  #open = new Map();      // conversations with an answer on its way
  #stops = new Map();     // id → AbortController
  #store = null;
  #removed = new Set();   // ids: an answer on its way must not bring one back
  #paint = null;
  #noticeTimer = null;
  #channel = null;
  #asksServer = !hasSettings();   // for the settings to begin with (--ui-config)
  #chosen = {};                   // settings that were changed before it answered: they stay

  subscribe(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  set(change) {
    this.state = { ...this.state, ...change };
    for (const listener of this.#listeners) listener();
  }

  async start() {
    applyTheme(this.state.settings.theme);
    window.addEventListener('hashchange', () => this.#route());
    window.addEventListener('pagehide', () => { for (const c of this.#open.values()) this.#save(c); });
    if (typeof BroadcastChannel === 'function') {
      this.#channel = new BroadcastChannel('bloomery');
      this.#channel.onmessage = () => this.#reload();
    }
    this.#store = await openStore();
    this.set({ kept: this.#store.kept, summaries: await this.#store.list() });
    await this.#route();
    this.set({ ready: true });
    this.#watch();
  }

  // ---- the server

  async #watch() {
    for (;;) {
      await this.checkServer();
      while (this.state.server.status === 'key') await wait(STATUS_MS);
      while (this.state.server.status === 'ready') await this.#lookAtHealth();
      await wait(STATUS_MS);
    }
  }

  async #lookAtHealth() {
    for (let waited = 0; waited < HEALTH_MS && this.state.server.status === 'ready'; waited += STATUS_MS) await wait(STATUS_MS);
    if (document.visibilityState !== 'visible' || this.#open.size > 0) return;
    try {
      await getJson('health', '');
    } catch (error) {
      this.#serverFailed(error);
    }
  }

  async checkServer() {
    try {
      const props = await getJson('props', this.state.key);
      this.#takeSettings(props.ui_settings);
      this.set({ server: { status: 'ready', message: '', props } });
    } catch (error) {
      this.#serverFailed(error);
    }
  }

  #takeSettings(offered) {
    if (!this.#asksServer) return;
    this.#asksServer = false;
    const settings = { ...checked(offered), ...this.#chosen };
    this.set({ settings });
    applyTheme(settings.theme);
    if (hasSettings()) saveSettings(settings);  // what was chosen has been saved
  }

  #serverFailed(error) {
    const { props } = this.state.server;
    if (error.status === 401) {
      return this.set({ server: { status: 'key', message: this.state.key ? 'The server does not know this key.' : '', props } });
    }
    if (error.status === 503) return this.set({ server: { status: 'loading', message: error.message, props } });
    if (error.status === 0) return this.set({ server: { status: 'offline', message: error.message, props } });
    return this.set({ server: { status: 'error', message: error.message, props } });
  }

  async useKey(key, remember = this.state.settings.rememberKey) {
    saveKey(key, remember);
    this.set({ key });
    this.changeSettings({ rememberKey: remember });
    await this.checkServer();
    return this.state.server.status !== 'key';
  }

  // ---- where we are

  async #route() {
    const hash = location.hash.slice(1);
    const id = /^\/c\/(\w+)$/.exec(hash)?.[1];
    if (hash === '/machine') return this.set({ view: 'machine', drawer: false });
    if (!id) return this.set({ view: 'chat', conversation: null, drawer: false });
    if (this.state.conversation?.id === id) return this.set({ view: 'chat', drawer: false });
    const found = this.#open.get(id) ?? await this.#store.get(id);
    if (!found) {
      this.go('/');
      return this.notify('That conversation is not in this browser.');
    }
    return this.set({
      view: 'chat', drawer: false, conversation: this.#open.has(id) ? found : asLoaded(found) });
  }

  go(place) {
    if (location.hash.slice(1) === place) return this.#route();
    location.hash = place;
    return undefined;
  }

  newChat() { this.go('/'); }

  // Another tab changed something.
  async #reload() {
    this.set({ summaries: await this.#store.list() });
    const shown = this.state.conversation;
    if (!shown || this.#open.has(shown.id)) return;
    const found = await this.#store.get(shown.id);
    if (found) this.set({ conversation: asLoaded(found) });
    else this.go('/');
  }

  // ---- conversations

  async #save(conversation) {
    if (this.#removed.has(conversation.id)) return;
    try {
      await this.#store.put([conversation]);
      this.set({ summaries: await this.#store.list() });
      this.#channel?.postMessage('changed');
    } catch (error) {
      this.notify(`The browser did not keep this conversation: ${error.message}`);
    }
  }

  // Puts a changed conversation in its place: in the list, and on the page if it is shown.
  #put(conversation) {
    if (this.#open.has(conversation.id)) this.#open.set(conversation.id, conversation);
    if (this.state.conversation?.id === conversation.id) this.set({ conversation });
  }

  async rename(title) {
    const { conversation } = this.state;
    const named = { ...conversation, title: title.trim() || conversation.title };
    this.#put(named);
    await this.#save(named);
  }

  async remove(conversation) {
    this.#removed.add(conversation.id);
    this.#stops.get(conversation.id)?.abort();
    await this.#store.remove(conversation.id);
    this.#channel?.postMessage('changed');
    this.set({ summaries: await this.#store.list() });
    if (this.state.conversation?.id === conversation.id) this.go('/');
    this.notify(`“${conversation.title}” was deleted.`, {
      label: 'Undo',
      run: async () => {
        this.#removed.delete(conversation.id);
        await this.#save(asLoaded(conversation));
        this.go(`/c/${conversation.id}`);
      },
    });
  }

  async removeAll() {
    for (const [id, stop] of this.#stops) {
      this.#removed.add(id);
      stop.abort();
    }
    await this.#store.clear();
    this.#channel?.postMessage('changed');
    this.set({ summaries: [], dialog: null });
    this.go('/');
    this.notify('All conversations were deleted.');
  }

  async exportAll() { download('bloomery-conversations.json', exportText(await this.#store.all())); }

  exportOne(conversation) {
    download(`${conversation.title.replace(/[^\w -]+/g, '').trim() || 'conversation'}.json`, exportText([conversation]));
  }

  async importFile(file) {
    try {
      if (file.size > IMPORT_BYTES_MAX) throw new Error('the file is larger than 64 MiB');
      const conversations = importText(await file.text());
      await this.#store.put(conversations);
      this.#channel?.postMessage('changed');
      this.set({ summaries: await this.#store.list(), dialog: null });
      this.notify(`${conversations.length} ${conversations.length === 1 ? 'conversation was' : 'conversations were'} imported.`);
    } catch (error) {
      this.notify(`Nothing was imported: ${error.message}`);
    }
  }

  // ---- chat

  // What the user says, behind the shown branch. False where nothing could be sent.
  send(text) {
    const shown = this.state.conversation ?? newConversation();
    if (!text.trim() || this.#open.has(shown.id)) return false;
    return this.#ask(shown, shown.leaf, { role: 'user', content: text });
  }

  // The same place said otherwise: a branch beside it.
  edit(id, text) {
    const { conversation } = this.state;
    const { parent } = conversation.messages[id];
    return this.#ask(conversation, parent, { role: 'user', content: text });
  }

  #ask(conversation, parent, message) {
    let asked = addMessage(conversation, parent, message);
    if (!asked.title) asked = { ...asked, title: titleFrom(message.content) };
    return this.#answer(asked, asked.leaf);
  }

  // What the calls of an answer came to; the model goes on from there.
  giveResults(id, results) {
    let { conversation } = this.state;
    let parent = id;
    for (const { toolCallId, content } of results) {
      conversation = addMessage(conversation, parent, { role: 'tool', toolCallId, content });
      parent = conversation.leaf;
    }
    return this.#answer(conversation, parent);
  }

  // Another answer in place of this one, kept beside it.
  retry(id) {
    const { conversation } = this.state;
    return this.#answer(conversation, conversation.messages[id].parent);
  }

  // Writes on where an answer was stopped or cut off.
  resume(id) {
    return this.#generate(this.state.conversation, id);
  }

  #answer(conversation, parent) {
    const added = addMessage(conversation, parent, { role: 'assistant', state: 'waiting' }, Date.now() + 1);
    return this.#generate(added, added.leaf);
  }

  #generate(conversation, id) {
    let fields;
    try {
      fields = requestFields(this.state.settings);
    } catch (error) {
      this.notify(`The settings cannot be sent. ${error.message}`, { label: 'Settings', run: () => this.set({ dialog: 'settings' }) });
      return false;
    }
    const before = conversation.messages[id];
    const started = updateMessage(conversation, id, { state: 'waiting', error: undefined, finish: undefined, progress: undefined });
    this.#open.set(started.id, started);
    this.set({ conversation: started, running: new Set(this.#open.keys()), spoken: 'Waiting for the answer.' });
    if (this.state.view !== 'chat' || !location.hash.endsWith(started.id)) this.go(`/c/${started.id}`);
    this.#save(started);
    const messages = requestMessages(branchOf(started, before.content || before.reasoning ? id : before.parent), this.state.settings.system);
    this.#run(started.id, id, {
      ...fields, messages, stream: true, stream_options: { include_usage: true }, timings_per_token: true, return_progress: true,
    });
    return true;
  }

  async #run(conversationId, id, body) {
    const stop = new AbortController();
    this.#stops.set(conversationId, stop);
    let message = this.#open.get(conversationId).messages[id];
    const speaker = new Speaker((spoken) => this.set({ spoken }));
    let saved = Date.now();
    const show = (change) => {
      message = { ...message, ...change };
      this.#open.set(conversationId, updateMessage(this.#open.get(conversationId), id, message));
      this.#paintSoon(conversationId);
      if (Date.now() - saved < SAVE_MS) return;
      saved = Date.now();
      this.#save(this.#open.get(conversationId));
    };
    try {
      await streamChat(body, this.state.key, stop.signal, (event) => {
        show(this.#read(message, event));
        speaker.hear(message.content ?? '');
      });
      show({ state: 'done' });
      speaker.end(message.content ?? '', message.toolCalls?.length ? 'The answer calls tools.' : 'The answer is complete.');
    } catch (error) {
      if (stop.signal.aborted) {
        show({ state: 'stopped' });
        this.set({ spoken: 'Stopped.' });
      } else {
        const told = error instanceof ApiError ? error : new ApiError(500, '', `This page failed: ${error.message}`);
        show({ state: 'error', error: { status: told.status, text: told.message } });
        this.set({ spoken: `The answer failed: ${told.message}` });
        if (told.status === 401 || told.status === 0 || told.status === 503) this.checkServer();
      }
    }
    const final = this.#open.get(conversationId);
    this.#open.delete(conversationId);
    this.#stops.delete(conversationId);
    this.set({ running: new Set(this.#open.keys()) });
    this.#put(final);
    await this.#save(final);
  }

  // A chunk of the stream as a change of the message.
  #read(message, event) {
    const change = {};
    if (event.prompt_progress) change.progress = event.prompt_progress;
    if (event.timings) change.timings = event.timings;
    if (event.usage) change.usage = event.usage;
    if (event.model) change.model = event.model;
    const choice = event.choices?.[0];
    if (!choice) return change;
    if (choice.finish_reason) change.finish = choice.finish_reason;
    const joined = joinDelta(message, choice.delta ?? {});
    const begun = joined.content !== message.content || joined.reasoning !== message.reasoning || joined.toolCalls !== message.toolCalls;
    if (begun) change.state = 'streaming';
    if (joined.reasoning && !message.reasoning) change.thoughtFrom = Date.now();
    if (message.thoughtFrom && !message.thoughtTo && (joined.content || joined.toolCalls)) change.thoughtTo = Date.now();
    return { ...joined, ...change };
  }

  #paintSoon(conversationId) {
    this.#paint ??= setTimeout(() => {
      this.#paint = null;
      const conversation = this.#open.get(conversationId);
      if (conversation) this.#put(conversation);
    }, PAINT_MS);
  }

  stop() { this.#stops.get(this.state.conversation?.id)?.abort(); }

  showVersion(id) {
    const chosen = showVersion(this.state.conversation, id);
    this.#put(chosen);
    this.#save(chosen);
  }

  // ---- the rest

  changeSettings(change) {
    if (this.#asksServer) this.#chosen = { ...this.#chosen, ...change };
    const settings = { ...this.state.settings, ...change };
    this.set({ settings });
    applyTheme(settings.theme);
    saveSettings(settings);
  }

  notify(text, act = null) {
    clearTimeout(this.#noticeTimer);
    this.set({ notice: { text, act } });
    this.#noticeTimer = setTimeout(() => this.set({ notice: null }), NOTICE_MS);
  }
}

// Gives what screen readers say of a growing answer: whole sentences, with pauses between.
class Speaker {
  #said = 0;
  #last = Date.now();
  #say;

  constructor(say) { this.#say = say; }

  hear(text) {
    if (Date.now() - this.#last < SPEAK_MS) return;
    const end = text.slice(this.#said).search(/[.!?。](?=\s)[^.!?。]*$/);
    if (end < 0) return;
    this.#say(text.slice(this.#said, this.#said + end + 1));
    this.#said += end + 1;
    this.#last = Date.now();
  }

  end(text, closing) { this.#say(`${text.slice(this.#said)} ${closing}`); }
}

function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: 'application/json' }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

// Also where the page has no right to the clipboard: without TLS there is none.
export async function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.createElement('textarea');
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand('copy');
  area.remove();
  return undefined;
}
