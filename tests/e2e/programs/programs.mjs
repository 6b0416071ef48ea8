// programs.mjs BIN: the programs as users start them: exit codes, the stop signals, the chat in a
// pipe, the socket before the model is loaded, and a soak of 200 requests.
import { spawn } from 'node:child_process';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { check, checkEqual, launch, startServer } from '../server.mjs';

const serve = join(process.argv[2], 'bloomery-serve');
const bloomery = join(process.argv[2], 'bloomery');
const here = dirname(fileURLToPath(import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'bloomery-programs-'));

async function run(program, args, input = '') {
  const child = launch(program, args);
  child.stdin.end(input);
  const { code } = await child.ended;
  return { code, out: child.out, err: child.err };
}

async function exitCodes() {
  const unknown = await run(serve, ['--bogus']);
  checkEqual(unknown.code, 64, 'unknown flag');
  check(unknown.err.includes('--bogus'), 'the unknown flag is named');
  checkEqual((await run(serve, ['-m', join(folder, 'none.gguf')])).code, 66, 'missing model');
  writeFileSync(join(folder, 'text.gguf'), 'this is no model');
  checkEqual((await run(serve, ['--port', '0', '-m', join(folder, 'text.gguf')])).code, 65, 'no model');
  checkEqual((await run(serve, ['--api-key-file', join(folder, 'none')])).code, 66, 'missing key file');
  writeFileSync(join(folder, 'no-keys'), '# none\n\n');
  checkEqual((await run(serve, ['--api-key-file', join(folder, 'no-keys')])).code, 64, 'a key file without keys');
  writeFileSync(join(folder, 'bad.jinja'), '{% frob %}');
  checkEqual((await run(serve, ['--port', '0', '--chat-template-file', join(folder, 'bad.jinja')])).code,
             65, 'broken template');
  checkEqual((await run(serve, ['--port', '0', '--host-budget', '1MiB'])).code, 78, 'plan over budget');
  const help = await run(serve, ['--help']);
  checkEqual(help.code, 0, '--help');
  check(help.out.includes('--ctx-size'), '--help lists flags');
  checkEqual((await run(serve, ['--version'])).code, 0, '--version');
  checkEqual((await run(bloomery, ['frobnicate'])).code, 64, 'unknown command');
  checkEqual((await run(bloomery, [])).code, 64, 'no command');
}

async function serverLife() {
  const server = await startServer(serve);
  check(server.child.out.includes('demo'), 'the demo model is said to be one');
  check(/listening on http:\S+\n$/.test(server.child.out), 'the last line has the URL');
  const port = new URL(server.url).port;
  checkEqual((await run(serve, ['--port', port])).code, 71, 'busy port');
  checkEqual(await server.stop(), 0, 'orderly stop');

  // A stream that does not end by itself is drained for a bounded time after the first signal, and
  // not at all after the second.
  for (const [signals, code] of [[1, 0], [2, 1]]) {
    const streaming = await startServer(serve);
    const response = await fetch(`${streaming.url}/completion`, {
      method: 'POST', body: JSON.stringify({ prompt: 'The', stream: true, ignore_eos: true }),
    });
    await response.body.getReader().read();
    const start = Date.now();
    streaming.child.kill('SIGTERM');
    if (signals === 2) {
      await new Promise((resolve) => setTimeout(resolve, 200));
      streaming.child.kill('SIGTERM');
    }
    checkEqual((await streaming.child.ended).code, code, `exit code after ${signals} signals`);
    check(Date.now() - start < (signals === 1 ? 15000 : 4000), 'the stop is bounded');
  }
}

async function keyFile() {
  const keys = join(folder, 'keys');
  writeFileSync(keys, '# comment\n\nkey-in-file\r\n');
  const server = await startServer(serve, ['--api-key-file', keys]);
  const status = async (key) =>
    (await fetch(`${server.url}/props`, { headers: { Authorization: `Bearer ${key}` } })).status;
  checkEqual(await status('key-in-file'), 200, 'a key of the file');
  checkEqual(await status('# comment'), 401, 'a comment is no key');
  checkEqual(await server.stop(), 0, 'stop');
  check(!server.child.err.includes('key-in-file'), 'the key is not logged');
}

async function chat() {
  const question = 'What is the capital of Japan?\n';
  const inProcess = await run(bloomery, ['chat', '--temp', '0'], `${question}/clear\n${question}/exit\n`);
  checkEqual(inProcess.code, 0, 'chat in process');
  const lines = inProcess.out.trim().split('\n');
  check(lines.length === 2 && lines[0].includes('Tokyo'), `two answers with Tokyo: ${inProcess.out}`);
  checkEqual(lines[0], lines[1], 'a cleared conversation starts anew');

  const server = await startServer(serve, ['--temp', '0', '--api-key', 'k']);
  const remote = await run(bloomery, ['chat', '--url', server.url, '--api-key', 'k'], question);
  checkEqual(remote.code, 0, 'chat over HTTP');
  checkEqual(remote.out.trim(), lines[0], 'both chats give the same answer');
  const stranger = await run(bloomery, ['chat', '--url', server.url], question);
  checkEqual(stranger.code, 66, 'chat without key');
  check(stranger.err.includes('Invalid API Key'), 'the refusal is shown');
  checkEqual(await server.stop(), 0, 'stop');
  checkEqual((await run(bloomery, ['chat', '--url', server.url], question)).code, 66, 'no server');
}

async function soakOf200() {
  const server = await startServer(serve, ['-np', '4']);
  const soak = spawn(process.execPath, [join(here, '..', 'soak.mjs'), server.url, '200', '8', '3'],
                     { stdio: 'inherit' });
  const code = await new Promise((resolve) => soak.on('close', resolve));
  checkEqual(code, 0, 'soak');
  checkEqual(await server.stop(), 0, 'stop after the soak');
}

await exitCodes();
await serverLife();
await keyFile();
await chat();
await soakOf200();
console.log('ok');
