// The parts of the page that need no browser: conversations, streams, settings, metrics.
import assert from 'node:assert/strict';
import test from 'node:test';

import { parseMetrics } from '../../../runtime/assets/page/src/api.js';
import {
  addMessage, asLoaded, branchOf, exportText, importText, joinDelta, newConversation, requestMessages, showVersion, titleFrom,
  updateMessage, versionsOf,
} from '../../../runtime/assets/page/src/conversation.js';
import { DEFAULTS, checked, requestFields } from '../../../runtime/assets/page/src/settings.js';
import { SseReader } from '../../../runtime/assets/page/src/sse.js';

const say = (conversation, role, content, at, parent = conversation.leaf, more = {}) =>
  addMessage(conversation, parent, { role, content, ...more }, at);
const texts = (conversation) => branchOf(conversation).map((m) => m.content);

function example() {
  let c = newConversation(0);
  c = say(c, 'user', 'a', 1);
  c = say(c, 'assistant', 'b', 2);
  c = say(c, 'user', 'c', 3);
  return say(c, 'assistant', 'd', 4);
}

test('a branch is what was said last, and a version leads to what was said behind it', () => {
  const first = example();
  const [a, b] = branchOf(first);
  const retried = say(first, 'assistant', 'B', 5, a.id);
  assert.deepEqual(texts(retried), ['a', 'B']);
  assert.deepEqual(versionsOf(retried, b.id).map((m) => m.content), ['b', 'B']);
  assert.deepEqual(texts(showVersion(retried, b.id)), ['a', 'b', 'c', 'd']);
  const edited = say(retried, 'user', 'A', 6, null);
  assert.deepEqual(texts(edited), ['A']);
  assert.deepEqual(versionsOf(edited, edited.leaf).map((m) => m.content), ['a', 'A']);
  assert.deepEqual(texts(first), ['a', 'b', 'c', 'd'], 'what was given is as it was');
});

test('a request holds the system prompt, reasoning and calls, and no answer that never began', () => {
  let c = say(newConversation(0), 'user', 'q', 1);
  c = say(c, 'assistant', '', 2, c.leaf, { state: 'error' });
  const user = branchOf(c)[0].id;
  c = say(c, 'assistant', '', 3, user, { reasoning: 'r', toolCalls: [{ id: 'i', name: 'n', arguments: '{}' }] });
  c = say(c, 'tool', 'out', 4, c.leaf, { toolCallId: 'i' });
  assert.deepEqual(requestMessages(branchOf(c), 's'), [
    { role: 'system', content: 's' }, { role: 'user', content: 'q' },
    { role: 'assistant', content: '', reasoning_content: 'r', tool_calls: [{ id: 'i', type: 'function', function: { name: 'n', arguments: '{}' } }] },
    { role: 'tool', tool_call_id: 'i', content: 'out' }]);
  assert.deepEqual(requestMessages([{ role: 'assistant', content: '' }], ' '), []);
});

test('pieces of a stream join: text, reasoning, and calls by their index', () => {
  let m = { content: '' };
  for (const delta of [{ role: 'assistant', content: null }, { reasoning_content: 'x' }, { reasoning_content: 'y' }, { content: 'a' }, { content: 'b' },
    { tool_calls: [{ index: 1, id: 'i1', function: { name: 'g', arguments: '' } }] }, { tool_calls: [{ index: 1, function: { arguments: '{"a"' } }] },
    { tool_calls: [{ index: 0, id: 'i0', function: { name: 'f', arguments: '{}' } }, { index: 1, function: { arguments: ':1}' } }] }]) m = joinDelta(m, delta);
  assert.deepEqual(m, { content: 'ab', reasoning: 'xy', toolCalls: [{ id: 'i0', name: 'f', arguments: '{}' }, { id: 'i1', name: 'g', arguments: '{"a":1}' }] });
});

test('what was being written when the page went away is stopped', () => {
  const c = say(newConversation(0), 'assistant', 'half', 1, null, { state: 'streaming' });
  assert.equal(branchOf(asLoaded(c))[0].state, 'stopped');
  assert.equal(asLoaded(example()).leaf !== null, true);
});

test('titles are one line of at most sixty letters', () => {
  assert.equal(titleFrom('  one\ntwo'), 'one');
  assert.equal(Array.from(titleFrom('🦉'.repeat(100))).length, 60);
  assert.equal(titleFrom('a   b'), 'a b');
});

test('what is exported is imported, under an address of its own', () => {
  const c = { ...example(), title: 'T' };
  const [back] = importText(exportText([c]));
  assert.notEqual(back.id, c.id);
  assert.deepEqual([back.title, texts(back)], ['T', texts(c)]);
});

test('files that are none are refused with what is wrong', () => {
  const file = JSON.parse(exportText([example()]));
  const ids = branchOf(file.conversations[0]).map((m) => m.id);
  const broken = (change) => {
    const copy = structuredClone(file);
    change(copy.conversations[0], copy);
    return JSON.stringify(copy);
  };
  for (const [text, told] of [
    ['', /not JSON/], ['[]', /no conversations/], ['null', /no conversations/],
    [broken((c, f) => { f.version = 9; }), /version 9/],
    [broken((c) => { c.messages[ids[0]].role = 'system'; }), /conversation 1: message .* no role/],
    [broken((c) => { c.messages[ids[1]].parent = 'nobody'; }), /follows one that is not there/],
    [broken((c) => { c.messages[ids[0]].parent = ids[3]; }), /circle/],
    [broken((c) => { c.leaf = 'nobody'; }), /ends with is not there/],
    [broken((c) => { c.messages = 5; }), /no messages/],
    [broken((c, f) => { f.conversations = [null]; }), /conversation 1/],
  ]) assert.throws(() => importText(text), told);
});

test('an imported file brings no fields but ours, and changes no prototype', () => {
  const file = JSON.parse(exportText([example()]));
  const [c] = file.conversations;
  const text = JSON.stringify(file).replace(`"${c.leaf}":{`, `"__proto__":{"role":"user","polluted":1},"${c.leaf}":{"evil":1,`);
  const [back] = importText(text);
  assert.equal({}.polluted, undefined);
  assert.equal(Object.getPrototypeOf(back.messages), Object.prototype);
  assert.equal(back.messages[back.leaf].evil, undefined);
});

test('updating a message leaves the others alone', () => {
  const c = example();
  const changed = updateMessage(c, c.leaf, { content: 'x' });
  assert.deepEqual(texts(changed), ['a', 'b', 'c', 'x']);
  assert.equal(changed.messages[branchOf(c)[0].id], c.messages[branchOf(c)[0].id]);
});

test('events of a stream are read however it was cut', () => {
  const stream = ': ping\n\ndata: {"a":1}\n\ndata: one\r\ndata: two\r\n\r\nevent: x\ndata:three\n\ndata: [DONE]\n\n';
  const want = ['{"a":1}', 'one\ntwo', 'three', '[DONE]'];
  for (const size of [1, 2, 3, 7, stream.length]) {
    const reader = new SseReader();
    const got = [];
    for (let i = 0; i < stream.length; i += size) got.push(...reader.feed(stream.slice(i, i + size)));
    assert.deepEqual(got, want, `pieces of ${size}`);
  }
});

test('empty settings send nothing, and wrong ones say which', () => {
  assert.deepEqual(requestFields(DEFAULTS), {});
  assert.deepEqual(requestFields({ ...DEFAULTS, sampling: { temperature: '0', top_k: '', top_p: '0.5' }, maxTokens: '7', thinking: 'on', effort: 'high' }),
    { temperature: 0, top_p: 0.5, max_tokens: 7, chat_template_kwargs: { enable_thinking: true }, reasoning_effort: 'high' });
  assert.deepEqual(requestFields({ ...DEFAULTS, tools: '[{"type": "function"}]' }), { tools: [{ type: 'function' }], tool_choice: 'auto' });
  assert.throws(() => requestFields({ ...DEFAULTS, tools: '{}' }), /Tools/);
  assert.throws(() => requestFields({ ...DEFAULTS, extra: '[' }), /More fields: not JSON/);
});

test('stored settings of another kind are left out', () => {
  assert.deepEqual(checked({ sampling: null, theme: 5, system: 'x', unknown: 1, rememberKey: 'yes' }), { ...DEFAULTS, system: 'x' });
  for (const none of [null, 'x', 5, []]) assert.deepEqual(checked(none), DEFAULTS);
});

test('metrics are read by name', () => {
  const { values, all } = parseMetrics('# HELP a b\n# TYPE a counter\nllamacpp:a_total 12\nb{x="1"} 2.5\n\nc 1e3\n');
  assert.deepEqual([...values], [['llamacpp:a_total', 12], ['c', 1000]]);
  assert.equal(all[1].name, 'b{x="1"}');
});
