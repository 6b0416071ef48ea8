// The prompt cache over a model whose layers keep a window of rows: conversations that take turns on one slot,
// answers made anew, prompts that go back further than the windows do, slot files. Every answer is compared with
// the one of a server without any cache, and what was taken over is counted.
//   node windows.mjs SERVER MODEL
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { check, checkEqual, startServer } from '../server.mjs';

const [server, model] = process.argv.slice(2);
const folder = mkdtempSync(join(tmpdir(), 'bloomery-windows-'));
const asked = [];  // prompts with the tokens of their answers

async function post(url, path, body) {
  const answer = await fetch(url + path, { method: 'POST', body: JSON.stringify(body ?? {}) });
  return { status: answer.status, body: await answer.json() };
}

async function complete(url, prompt, options = {}) {
  const { status, body } = await post(url, '/completion',
    { prompt, n_predict: 12, temperature: 0, ignore_eos: true, return_tokens: true, ...options });
  checkEqual(status, 200, `a completion: ${JSON.stringify(body)}`);
  asked.push({ prompt, tokens: body.tokens });
  return body;
}

async function withServer(args, use) {
  const running = await startServer(server,
    ['-m', model, '-c', '4096', '-t', '2', '-ub', '64', '--device', 'none', '--timeout', '60', ...args]);
  try {
    await use(running.url);
  } finally {
    checkEqual(await running.stop(), 0, 'the server ends in order');
  }
}

const long = (word, times) => `${word} and then some more of it, `.repeat(times);

async function turns() {
  await withServer(['--cache-ram', '256'], async (url) => {
    const talks = ['cats', 'rivers', 'trains'].map((topic) => long(topic, 60));
    for (let turn = 0; turn < 12; ++turn) {
      const at = turn % 3;
      talks[at] += `Question ${turn}: what is number ${turn * 7} good for?`;
      const answer = await complete(url, talks[at]);
      // A copy of the windows lies 16 positions before the end of what was read last, or behind it.
      if (turn >= 3) check(answer.timings.prompt_n < 64, `turn ${turn}: ${answer.timings.prompt_n} tokens evaluated`);
      talks[at] += answer.content;
    }
  });
}

async function back() {
  await withServer(['--cache-ram', '256'], async (url) => {
    const prompt = long('first', 200);
    const first = await complete(url, prompt);
    check(first.tokens_evaluated > 1200, `a prompt of ${first.tokens_evaluated} tokens`);
    // Made anew: the answer's rows are cut off, and what lies before them is still there.
    const again = await complete(url, prompt);
    checkEqual(again.timings.prompt_n, 1, 'an answer made anew');
    // Half of it: further back than the windows hold, so from a copy, at every 512th position.
    const half = await complete(url, long('first', 100));
    check(half.timings.cache_n >= 512, `${half.timings.cache_n} tokens from a copy`);
    check(half.timings.prompt_n < 513, `${half.timings.prompt_n} tokens evaluated`);
  });
  await withServer(['--cache-ram', '0'], async (url) => {
    await complete(url, long('first', 200));
    const half = await complete(url, long('first', 100));
    checkEqual(half.timings.cache_n, 0, 'without copies all is evaluated');
  });
}

// A file holds the windows at its end, so that is where a restored slot goes on.
async function slotFiles() {
  await withServer(['-np', '2', '--slot-save-path', folder], async (url) => {
    const { tokens } = (await post(url, '/tokenize', { content: long('saved', 150) })).body;
    const first = await complete(url, tokens, { id_slot: 0 });
    checkEqual((await post(url, '/slots/0?action=save', { filename: 'one.state' })).status, 200, 'saved');
    for (const slot of [0, 1]) await post(url, `/slots/${slot}?action=erase`);
    checkEqual((await post(url, '/slots/1?action=restore', { filename: 'one.state' })).status, 200, 'restored');
    const further = (await post(url, '/tokenize', { content: ' and on' })).body.tokens;
    const warm = await complete(url, [...tokens, ...first.tokens, ...further], { id_slot: 1 });
    check(warm.timings.cache_n > 900, `${warm.timings.cache_n} tokens of a restored slot`);
    // What the slot held is forgotten when it is erased, and its copies with it.
    await post(url, '/slots/1?action=erase');
    checkEqual((await complete(url, tokens, { id_slot: 1 })).timings.cache_n, 0, 'after an erase');
    await post(url, '/slots/1?action=erase');
    checkEqual((await post(url, '/slots/1?action=restore', { filename: 'one.state' })).status, 200, 'restored again');
    const parted = await complete(url, [...tokens, ...further], { id_slot: 1 });
    checkEqual(parted.timings.cache_n, 0, 'copies of what was erased are gone');
  });
}

try {
  await turns();
  await back();
  await slotFiles();
  await withServer(['--cache-ram', '0'], async (url) => {
    for (const { prompt, tokens } of asked.slice()) {
      const cold = await complete(url, prompt, { cache_prompt: false });
      checkEqual(cold.timings.cache_n, 0, 'a cold run');
      checkEqual(cold.tokens, tokens, 'an answer after a restore is that of a cold run');
    }
  });
  console.log(`windows: ${asked.length / 2} answers are those of cold runs`);
} finally {
  rmSync(folder, { recursive: true });
}
