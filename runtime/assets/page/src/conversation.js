// Conversations as plain values: a tree of messages, of which one branch is shown. An edit or a retry
// begins a branch beside the old one, so nothing that was said is lost. Functions here change nothing
// they are given; they return the new value.

export const FORMAT = 'bloomery-conversations';
export const FORMAT_VERSION = 1;
export const IMPORT_BYTES_MAX = 64 << 20;

const ROLES = new Set(['user', 'assistant', 'tool']);
const TITLE_CHARACTERS = 60;

// Random enough to name things with; crypto.randomUUID is not there without TLS.
export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('');
}

export function newConversation(now = Date.now()) {
  return { id: newId(), title: '', created: now, updated: now, leaf: null, messages: {} };
}

// Adds a message behind `parent` (null: the first) and shows the branch that ends with it.
export function addMessage(conversation, parent, message, now = Date.now()) {
  const added = { id: newId(), at: now, content: '', ...message, parent };
  return {
    ...conversation,
    updated: now,
    leaf: added.id,
    messages: { ...conversation.messages, [added.id]: added },
  };
}

export function updateMessage(conversation, id, change) {
  const message = { ...conversation.messages[id], ...change };
  return { ...conversation, messages: { ...conversation.messages, [id]: message } };
}

// The messages of the shown branch, the first one first.
export function branchOf(conversation, leaf = conversation.leaf) {
  const branch = [];
  for (let at = conversation.messages[leaf]; at; at = conversation.messages[at.parent]) branch.push(at);
  return branch.reverse();
}

// The versions of a message, oldest first: what else was said at its place by the same side.
export function versionsOf(conversation, id) {
  const { parent, role } = conversation.messages[id];
  return Object.values(conversation.messages)
    .filter((m) => m.parent === parent && m.role === role)
    .sort((a, b) => a.at - b.at || (a.id < b.id ? -1 : 1));
}

// Shows a version, and behind it what was said last.
export function showVersion(conversation, id) {
  const all = Object.values(conversation.messages);
  let leaf = id;
  for (;;) {
    const children = all.filter((m) => m.parent === leaf).sort((a, b) => b.at - a.at);
    if (children.length === 0) return { ...conversation, leaf };
    leaf = children[0].id;
  }
}

export function titleFrom(text) {
  const line = text.trim().split('\n', 1)[0].replace(/\s+/g, ' ').trim();
  const letters = Array.from(line);
  return letters.length <= TITLE_CHARACTERS ? line : `${letters.slice(0, TITLE_CHARACTERS - 1).join('').trimEnd()}…`;
}

// What the chat API gets of a branch. Answers that never began are left out.
export function requestMessages(branch, system) {
  const messages = system.trim() ? [{ role: 'system', content: system }] : [];
  for (const message of branch) {
    if (message.role === 'user') messages.push({ role: 'user', content: message.content });
    if (message.role === 'tool') {
      messages.push({ role: 'tool', tool_call_id: message.toolCallId, content: message.content });
    }
    if (message.role !== 'assistant') continue;
    const { content, reasoning, toolCalls } = message;
    if (!content && !reasoning && !toolCalls?.length) continue;
    messages.push({
      role: 'assistant',
      content: content ?? '',
      ...(reasoning ? { reasoning_content: reasoning } : {}),
      ...(toolCalls?.length
        ? { tool_calls: toolCalls.map((c) => ({ id: c.id, type: 'function', function: { name: c.name, arguments: c.arguments } })) }
        : {}),
    });
  }
  return messages;
}

// A piece of a streamed answer, joined to what came before.
export function joinDelta(message, delta) {
  const change = {};
  if (typeof delta.reasoning_content === 'string') {
    change.reasoning = (message.reasoning ?? '') + delta.reasoning_content;
  }
  if (typeof delta.content === 'string') change.content = (message.content ?? '') + delta.content;
  if (Array.isArray(delta.tool_calls)) {
    const calls = (message.toolCalls ?? []).map((c) => ({ ...c }));
    for (const piece of delta.tool_calls) {
      const index = piece.index ?? 0;
      while (calls.length <= index) calls.push({ id: '', name: '', arguments: '' });
      calls[index].id ||= piece.id ?? '';
      calls[index].name ||= piece.function?.name ?? '';
      calls[index].arguments += piece.function?.arguments ?? '';
    }
    change.toolCalls = calls;
  }
  return { ...message, ...change };
}

// What was being written when the page went away is not being written any more.
export function asLoaded(conversation) {
  let loaded = conversation;
  for (const message of Object.values(conversation.messages)) {
    if (message.state === 'waiting' || message.state === 'streaming') {
      loaded = updateMessage(loaded, message.id, { state: 'stopped' });
    }
  }
  return loaded;
}

export function exportText(conversations, now = new Date()) {
  return JSON.stringify(
    { format: FORMAT, version: FORMAT_VERSION, exported: now.toISOString(), conversations }, null, 1);
}

const textOr = (value, fallback) => (typeof value === 'string' ? value : fallback);
const numberOr = (value, fallback) => (Number.isFinite(value) ? value : fallback);

function importedMessage(id, given, known) {
  if (typeof given !== 'object' || given === null || !ROLES.has(given.role)) {
    throw new Error(`message "${id}" has no role of user, assistant or tool`);
  }
  const parent = given.parent ?? null;
  if (parent !== null && !known.has(parent)) throw new Error(`message "${id}" follows one that is not there`);
  const calls = Array.isArray(given.toolCalls) ? given.toolCalls : [];
  return {
    id,
    parent,
    role: given.role,
    at: numberOr(given.at, 0),
    content: textOr(given.content, ''),
    state: ['stopped', 'error', 'waiting', 'streaming'].includes(given.state) ? 'stopped' : 'done',
    ...(typeof given.reasoning === 'string' ? { reasoning: given.reasoning } : {}),
    ...(typeof given.toolCallId === 'string' ? { toolCallId: given.toolCallId } : {}),
    ...(calls.length
      ? { toolCalls: calls.map((c) => ({ id: textOr(c?.id, ''), name: textOr(c?.name, ''), arguments: textOr(c?.arguments, '') })) }
      : {}),
    ...(typeof given.model === 'string' ? { model: given.model } : {}),
    ...(typeof given.finish === 'string' ? { finish: given.finish } : {}),
  };
}

function importedConversation(given, number) {
  const fail = (what) => { throw new Error(`conversation ${number}: ${what}`); };
  if (typeof given !== 'object' || given === null || typeof given.messages !== 'object' || given.messages === null) {
    fail('it has no messages');
  }
  const known = new Set(Object.keys(given.messages));
  const messages = {};
  for (const [id, message] of Object.entries(given.messages)) {
    try {
      // An own property whatever its name is.
      Object.defineProperty(messages, id, {
        value: importedMessage(id, message, known), enumerable: true, writable: true, configurable: true });
    } catch (error) {
      fail(error.message);
    }
  }
  const leaf = known.has(given.leaf) ? given.leaf : null;
  if (known.size > 0 && leaf === null) fail('the message it ends with is not there');
  // Each way up must end.
  for (const id of known) {
    const seen = new Set();
    for (let at = id; at !== null; at = messages[at].parent) {
      if (seen.has(at)) fail('its messages follow each other in a circle');
      seen.add(at);
    }
  }
  return {
    id: newId(),  // beside what is there, never in its place
    title: textOr(given.title, ''),
    created: numberOr(given.created, 0),
    updated: numberOr(given.updated, 0),
    leaf,
    messages,
  };
}

// The conversations of a file that was exported; throws with what is wrong and where.
export function importText(text) {
  let file;
  try {
    file = JSON.parse(text);
  } catch (error) {
    throw new Error(`the file is not JSON: ${error.message}`);
  }
  if (file?.format !== FORMAT || !Array.isArray(file.conversations)) {
    throw new Error('the file holds no conversations of this page');
  }
  if (file.version !== FORMAT_VERSION) throw new Error(`the file has version ${file.version}; this page reads ${FORMAT_VERSION}`);
  return file.conversations.map((c, i) => importedConversation(c, i + 1));
}
