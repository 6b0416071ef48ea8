// programs.mjs BIN: the programs as users start them: exit codes, the stop signals, the chat in a
// pipe, the README's first request, and a soak of 200 requests.
import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { check, checkEqual, launch, startServer } from '../server.mjs';

const serve = join(process.argv[2], 'bloomery-serve');
const bloomery = join(process.argv[2], 'bloomery');
const demoModel = join(process.argv[2], '..', 'share/bloomery/models/seedling-Q4_K_M.gguf');
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

// Where the data of each tensor begins in a GGUF file, and how long it is at most.
function tensorsOf(bytes) {
  let at = 8;
  const u32 = () => { at += 4; return bytes.readUInt32LE(at - 4); };
  const u64 = () => { at += 8; return Number(bytes.readBigUInt64LE(at - 8)); };
  const text = () => { const n = u64(); at += n; return bytes.toString('utf8', at - n, at); };
  const sizes = [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8];
  const skip = (type) => {
    if (type === 8) { text(); return; }
    if (type !== 9) { at += sizes[type]; return; }
    const item = u32();
    for (let left = u64(); left > 0; left -= 1) skip(item);
  };
  const tensors = u64();
  for (let keys = u64(); keys > 0; keys -= 1) { text(); skip(u32()); }
  const found = [];
  for (let i = 0; i < tensors; i += 1) {
    const name = text();
    for (let dims = u32(); dims > 0; dims -= 1) u64();
    u32();
    found.push({ name, offset: u64() });
  }
  const data = Math.ceil(at / 32) * 32;
  found.sort((a, b) => a.offset - b.offset);
  return found.map((tensor, i) => ({
    name: tensor.name, begin: data + tensor.offset,
    end: i + 1 < found.length ? data + found[i + 1].offset : bytes.length,
  }));
}

// Every row of the embedding is NaN: no pass can succeed. The tensor is quantised, so loading does not see it.
async function engineFailure() {
  const bytes = readFileSync(demoModel);
  const embedding = tensorsOf(bytes).find((tensor) => tensor.name === 'token_embd.weight');
  bytes.fill(0xff, embedding.begin, embedding.end);
  const path = join(folder, 'damaged.gguf');
  writeFileSync(path, bytes);
  const server = await startServer(serve, ['-m', path]);
  const complete = async () => (await fetch(`${server.url}/completion`, {
    method: 'POST', body: JSON.stringify({ prompt: 'The', n_predict: 1 }),
  })).status;
  for (let i = 0; i < 8; i += 1) checkEqual(await complete(), 500, `failing pass ${i}`);
  const health = await fetch(`${server.url}/health`);
  checkEqual([health.status, (await health.json()).status], [503, 'error'], 'health of a failed engine');
  checkEqual((await server.child.ended).code, 70, 'exit code of a failed engine');
  check(server.child.err.includes('the engine has failed'), 'the log says so');
}

// What is done in place of what was asked for, or left out, is said: in the log, and where clients look.
async function fallbacks() {
  const bytes = readFileSync(demoModel);
  const key = bytes.indexOf('tokenizer.chat_template');
  bytes.write('tokenizer.chat_templatX', key);
  const model = join(folder, 'no-template.gguf');
  writeFileSync(model, bytes);
  const plugins = join(folder, 'plugins');
  mkdirSync(plugins);
  writeFileSync(join(plugins, 'libpiped.so'), '');
  execFileSync('mkfifo', [join(plugins, 'piped.json')]);
  const server = await startServer(serve, ['-m', model, '--plugin-dir', plugins, '-c', '1000000']);
  const props = await (await fetch(`${server.url}/props`)).json();
  checkEqual(props.engine.chat.template, 'fallback chatml', 'the template in force');
  checkEqual(props.engine.context.asked, 1000000, 'the context asked for');
  checkEqual(props.engine.context.slot, props.engine.context.trained, 'the context in force');
  const models = async () => (await (await fetch(`${server.url}/v1/models`)).json()).data[0].created;
  checkEqual(await models(), Math.floor(statSync(model).mtimeMs / 1000), 'the model is as old as its file');
  checkEqual(await server.stop(), 0, 'stop');
  for (const line of ['has no chat template; chats are written as ChatML',
                      'a context of 1000000 a slot was asked for',
                      'libpiped.so: cannot open']) {
    check(server.child.err.includes(line), `the log says '${line}': ${server.child.err}`);
  }
}

async function startMistakes() {
  const ended = async (args, code, named) => {
    const result = await run(serve, ['--port', '0', ...args]);
    checkEqual(result.code, code, args.join(' ').slice(0, 80));
    check(result.err.includes(named), `${named} is named: ${result.err.slice(0, 200)}`);
  };
  await ended(['--chat-template-kwargs', '{"enable_thinking":"false"}'], 64, '--chat-template-kwargs');
  await ended(['--cors-origins', 'a\r\nX-Evil: 1'], 64, '--cors-origins');
  const large = join(folder, 'large.ini');
  writeFileSync(large, '# '.padEnd(4 * 1024 * 1024 + 1, 'x'));
  await ended(['--config', large], 66, 'large.ini');
  const marked = join(folder, 'marked.ini');
  writeFileSync(marked, '\ufeffport = none\n');
  const read = await run(serve, ['--config', marked]);
  checkEqual(read.code, 64, 'a settings file with a byte order mark is read');
  check(read.err.includes('port'), 'its key is known');
}

async function serverLife() {
  const server = await startServer(serve);
  check(server.child.out.includes('demo'), 'the demo model is said to be one');
  check(/listening on http:\S+\n$/.test(server.child.out), 'the last line has the URL');
  const port = new URL(server.url).port;
  const second = await run(serve, ['--port', port]);
  checkEqual(second.code, 71, 'busy port');
  check(second.err.includes(`port ${port}`) && second.err.includes('another --port'), `what to do: ${second.err}`);
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
      await new Promise((resolve) => setTimeout(resolve, 500));
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
  const asked = await run(bloomery, ['chat', '--temp', '0'], '/help\n');
  check(asked.out === '' && asked.err.includes('/clear'), `a command is not asked of the model: ${asked.out}`);

  const server = await startServer(serve, ['--temp', '0', '--api-key', 'k']);
  const remote = await run(bloomery, ['chat', '--url', server.url, '--api-key', 'k'], question);
  checkEqual(remote.code, 0, 'chat over HTTP');
  checkEqual(remote.out.trim(), lines[0], 'both chats give the same answer');
  const stranger = await run(bloomery, ['chat', '--url', server.url], question);
  checkEqual(stranger.code, 66, 'chat without key');
  check(stranger.err.includes('Invalid API Key'), 'the refusal is shown');
  checkEqual(await server.stop(), 0, 'stop');
  checkEqual((await run(bloomery, ['chat', '--url', server.url], question)).code, 74, 'no server');
}

// The README's first request, as it stands there but for the port.
async function firstRequest() {
  const readme = readFileSync(join(here, '..', '..', '..', 'README.md'), 'utf8');
  const section = readme.split('## First request\n')[1];
  const command = section.split('```')[1].trim();
  check(command.startsWith('curl ') && command.includes('http://127.0.0.1:8080/'), `a curl: ${command}`);
  const server = await startServer(serve);
  const answer = await run('bash', ['-c', command.replace('http://127.0.0.1:8080', server.url)]);
  checkEqual(answer.code, 0, `curl: ${answer.err}`);
  check(JSON.parse(answer.out).choices[0].message.content.includes('Tokyo'), `Tokyo: ${answer.out}`);
  checkEqual(await server.stop(), 0, 'stop');
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
await startMistakes();
await engineFailure();
await fallbacks();
await serverLife();
await keyFile();
await chat();
await firstRequest();
await soakOf200();
console.log('ok');
