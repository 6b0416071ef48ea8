// The prompt cache over HTTP: an agent's turns over three conversations on one slot, alternating prompts,
// slot files, restarts, and a server that is killed while it saves. Every answer after a restore is
// compared with the one of a server without any cache.
//   node cache.mjs SERVER [--rates]
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync, copyFileSync, appendFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { check, checkEqual, startServer } from '../server.mjs';

const [server, rates] = process.argv.slice(2);
const demo = join(dirname(server), '../share/bloomery/models/seedling-Q4_K_M.gguf');
const folder = mkdtempSync(join(tmpdir(), 'bloomery-cache-'));
const disk = join(folder, 'disk');

async function post(url, path, body) {
  const answer = await fetch(url + path, { method: 'POST', body: JSON.stringify(body ?? {}) });
  return { status: answer.status, body: await answer.json() };
}

async function complete(url, prompt, options = {}) {
  const { status, body } = await post(url, '/completion',
    { prompt, n_predict: 12, temperature: 0, return_tokens: true, ...options });
  checkEqual(status, 200, `a completion: ${JSON.stringify(body)}`);
  checkEqual(body.timings.cache_n + body.timings.prompt_n, body.tokens_evaluated, 'cached and evaluated are the prompt');
  return body;
}

async function withServer(args, use) {
  const running = await startServer(server, ['-c', '4096', '-t', '2', '--timeout', '60', ...args]);
  try {
    await use(running.url, running);
  } finally {
    if (running.child.exitCode === null && running.child.signalCode === null) {
      checkEqual(await running.stop(), 0, 'the server ends in order');
    }
  }
}

// One slot, three conversations, forty turns in turn: each prompt is its conversation so far, and what was
// held of it when it last ran need not be read again.
async function replay() {
  const system = 'You are a careful assistant that answers in one short sentence. '.repeat(6);
  const turns = [];
  await withServer(['--cache-ram', '256'], async (url) => {
    const talks = ['cats', 'rivers', 'trains'].map((topic) => ({ text: `${system}\nLet us speak of ${topic}.\n`, held: 0 }));
    let ideal = 0;
    let reused = 0;
    let systemHeld = 0;
    for (let turn = 0; turn < 40; ++turn) {
      const talk = talks[turn % 3];
      talk.text += `Question ${turn}: what is number ${turn * 7} good for?\nAnswer:`;
      const answer = await complete(url, talk.text);
      // The first turn of a conversation can take over the system prompt of the others.
      ideal += talk.held;
      reused += talk.held === 0 ? 0 : Math.min(answer.timings.cache_n, talk.held);
      if (talk.held === 0 && turn > 0) check(answer.timings.cache_n > systemHeld / 2, 'the system prompt is shared');
      if (turn === 0) systemHeld = (await post(url, '/tokenize', { content: system })).body.tokens.length;
      turns.push({ text: talk.text, tokens: answer.tokens });
      talk.text += `${answer.content}\n`;
      // What of the conversation the slot held in the end, as far as the next prompt says it in the same tokens.
      const next = (await post(url, '/tokenize', { content: talk.text })).body.tokens;
      const now = (await post(url, '/tokenize', { content: turns.at(-1).text })).body.tokens.concat(answer.tokens.slice(0, -1));
      let same = 0;
      while (same < now.length && now[same] === next[same]) ++same;
      talk.held = same;
    }
    console.log(`replay: ${reused} of ${ideal} tokens reused, ${(100 * reused / ideal).toFixed(2)} %`);
    check(reused >= 0.95 * ideal, `reuse of ${reused} of ${ideal}`);
  });
  await withServer(['--cache-ram', '0'], async (url) => {
    for (const turn of turns) {
      const cold = await complete(url, turn.text, { cache_prompt: false });
      checkEqual(cold.timings.cache_n, 0, 'a cold run');
      checkEqual(cold.tokens, turn.tokens, 'an answer after a restore is that of a cold run');
    }
  });
}

const long = (word) => `${word} and then some more of it, `.repeat(30);

async function alternating() {
  for (const [ram, reuses] of [['64', true], ['0', false]]) {
    await withServer(['--cache-ram', ram], async (url) => {
      for (let i = 0; i < 4; ++i) {
        const { timings, tokens_evaluated: all } = await complete(url, long(i % 2 ? 'first' : 'other'));
        if (i >= 2) checkEqual(timings.cache_n, reuses ? all - 1 : 0, `request ${i} with --cache-ram ${ram}`);
      }
    });
  }
}

// Prefixes come from another slot too, also while a slot is named.
async function slots() {
  await withServer(['-np', '2'], async (url) => {
    const prompt = long('shared');
    const first = await complete(url, prompt, { id_slot: 0 });
    const second = await complete(url, prompt, { id_slot: 1 });
    checkEqual(second.id_slot, 1, 'the named slot');
    checkEqual(second.timings.prompt_n, 1, 'what the other slot holds is taken over');
    checkEqual(second.tokens, first.tokens, 'the same answer');
  });
}

async function slotFiles() {
  const states = mkdtempSync(join(folder, 'states-'));
  const prompt = long('saved');
  let answer;
  await withServer([], async (url) => {
    checkEqual((await post(url, '/slots/0?action=erase')).status, 501, 'without a folder');
  });
  await withServer(['-np', '2', '--slot-save-path', states], async (url) => {
    answer = await complete(url, prompt, { id_slot: 0 });
    const saved = (await post(url, '/slots/0?action=save', { filename: 'one.state' })).body;
    checkEqual(saved.n_saved, answer.tokens_cached, 'n_saved is what the slot holds');
    checkEqual(saved.n_written, readFileSync(join(states, 'one.state')).length, 'n_written is the file');
    checkEqual((await post(url, '/slots/0?action=erase')).body.n_erased, saved.n_saved, 'n_erased');
    const cold = await complete(url, prompt, { id_slot: 0 });
    checkEqual(cold.timings.cache_n, 0, 'an erased state is gone');
    await post(url, '/slots/0?action=erase');
    const restored = await post(url, '/slots/1?action=restore', { filename: 'one.state' });
    checkEqual(restored.body.n_restored, saved.n_saved, 'n_restored');
    const warm = await complete(url, prompt, { id_slot: 1 });
    checkEqual(warm.timings.prompt_n, 1, 'one token is evaluated');
    checkEqual(warm.tokens, answer.tokens, 'the same answer');
    for (const [path, body, message] of [['/slots/x?action=save', {}, 'Invalid slot ID'], ['/slots/0?action=bogus', {}, 'Invalid action'],
      ['/slots/0?action=save', { filename: '../a' }, 'Invalid filename'], ['/slots/9?action=erase', {}, 'Invalid slot ID']]) {
      const refused = await post(url, path, body);
      checkEqual([refused.status, refused.body.error.message], [400, message], path);
    }
  });
  // After a restart; then damaged, cut off, and with a changed model.
  await withServer(['--slot-save-path', states], async (url) => {
    checkEqual((await post(url, '/slots/0?action=restore', { filename: 'one.state' })).status, 200, 'after a restart');
    checkEqual((await complete(url, prompt)).tokens, answer.tokens, 'the same answer after a restart');
    const whole = readFileSync(join(states, 'one.state'));
    const damaged = Buffer.from(whole);
    damaged[damaged.length >> 1] ^= 1;
    writeFileSync(join(states, 'damaged'), damaged);
    writeFileSync(join(states, 'short'), whole.subarray(0, whole.length - 9));
    for (const filename of ['damaged', 'short', 'missing']) {
      const refused = await post(url, '/slots/0?action=restore', { filename });
      checkEqual(refused.status, 400, filename);
      check(refused.body.error.message.startsWith('Unable to restore slot: ') && refused.body.error.message.includes(filename), filename);
      check(!refused.body.error.message.includes(states), 'no path is told');
      const after = (await (await fetch(`${url}/slots`)).json())[0];
      check(!after.is_processing, 'the slot is usable');
    }
    checkEqual((await complete(url, prompt)).tokens, answer.tokens, 'the slot is usable');
  });
  const changed = join(folder, 'changed.gguf');
  copyFileSync(demo, changed);
  appendFileSync(changed, Buffer.alloc(32));
  await withServer(['-m', changed, '--slot-save-path', states], async (url) => {
    const refused = await post(url, '/slots/0?action=restore', { filename: 'one.state' });
    checkEqual(refused.status, 400, 'a changed model');
    check(refused.body.error.message.includes('another model'), refused.body.error.message);
  });
  await withServer(['-c', '256', '--slot-save-path', states], async (url) => {
    const refused = await post(url, '/slots/0?action=restore', { filename: 'one.state' });
    checkEqual(refused.status, 400, 'a file larger than the slot');
  });
}

// Killed at random moments while states are written; what the next server takes over is right.
async function kills() {
  const prompts = ['red', 'green', 'blue', 'white'].map(long);
  const cold = [];
  await withServer(['--cache-ram', '0'], async (url) => {
    for (const prompt of prompts) cold.push((await complete(url, prompt, { cache_prompt: false })).tokens);
  });
  let fromDisk = 0;
  for (let round = 0; round < 6; ++round) {
    await withServer(['--cache-disk', disk, '--cache-disk-limit', '64MiB'], async (url, running) => {
      for (const [i, prompt] of prompts.entries()) {
        const answer = await complete(url, prompt);
        checkEqual(answer.tokens, cold[i], `round ${round}, prompt ${i}`);
        if (round > 0) fromDisk += answer.timings.cache_n;
      }
      if (round === 5) return;
      await new Promise((resolve) => { setTimeout(resolve, round * 7); });
      running.child.kill('SIGKILL');
      await running.child.ended;
    });
  }
  check(fromDisk > 0, 'states outlive a kill');
  check(readdirSync(disk).every((name) => !name.startsWith('.partial-')), 'nothing half written is left');
}

// For docs/measurements/serving.md.
async function measure() {
  const states = mkdtempSync(join(folder, 'rates-'));
  await withServer(['--slot-save-path', states, '--cache-ram', '512'], async (url) => {
    const prompts = ['one', 'two'].map((word) => `${word} and then some more of it, `.repeat(350));
    for (let i = 0; i < 6; ++i) {
      const { timings } = await complete(url, prompts[i % 2], { n_predict: 1 });
      console.log(`switch ${i}: cache_n ${timings.cache_n}, prompt_n ${timings.prompt_n}, prompt_ms ${timings.prompt_ms.toFixed(2)}`);
    }
    for (let i = 0; i < 5; ++i) {
      const saved = (await post(url, '/slots/0?action=save', { filename: 'rate' })).body;
      const read = (await post(url, '/slots/0?action=restore', { filename: 'rate' })).body;
      const rate = (bytes, ms) => `${(bytes / 1e6 / ms).toFixed(2)} GB/s`;
      console.log(`file of ${saved.n_written} bytes, ${saved.n_saved} tokens: save ${saved.timings.save_ms.toFixed(2)} ms (${rate(saved.n_written, saved.timings.save_ms)}), ` +
        `restore ${read.timings.restore_ms.toFixed(2)} ms (${rate(read.n_read, read.timings.restore_ms)})`);
    }
  });
}

try {
  if (rates) {
    await measure();
  } else {
    for (const part of [replay, alternating, slots, slotFiles, kills]) {
      await part();
      console.log(`${part.name}: ok`);
    }
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
