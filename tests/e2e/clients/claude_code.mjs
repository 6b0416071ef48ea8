// claude_code.mjs SERVER_PROGRAM: Claude Code runs one turn against the demo model: it asks, the model calls a tool,
// the tool's result goes back, the model answers. Only the template is the test's: the agent's instructions are longer
// than the demo model's context.
import { spawn } from 'node:child_process';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { check, checkEqual, startServer } from './server.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const home = mkdtempSync(join(tmpdir(), 'bloomery-agent-'));
const key = 'secret-of-the-test';

async function ask(url, question) {
  const mcp = join(home, 'mcp.json');
  writeFileSync(mcp, JSON.stringify({
    mcpServers: { weather: { command: process.execPath, args: [join(here, 'weather_server.mjs')] } },
  }));
  const builtIn = ['Task', 'Bash', 'BashOutput', 'KillShell', 'Glob', 'Grep', 'Read', 'Edit', 'Write', 'NotebookEdit',
                   'WebFetch', 'WebSearch', 'TodoWrite', 'ExitPlanMode', 'SlashCommand'];
  const child = spawn(process.execPath, [
    join(here, 'node_modules/@anthropic-ai/claude-code/cli.js'), '-p', question, '--output-format', 'stream-json', '--verbose',
    '--mcp-config', mcp, '--strict-mcp-config', '--allowedTools', 'mcp__weather__get_weather',
    '--disallowedTools', builtIn.join(','), '--model', 'seed',
  ], {
    cwd: home, stdio: ['ignore', 'pipe', 'pipe'],
    env: {
      PATH: process.env.PATH, HOME: home, CLAUDE_CONFIG_DIR: join(home, 'config'),
      ANTHROPIC_BASE_URL: url, ANTHROPIC_API_KEY: key, ANTHROPIC_SMALL_FAST_MODEL: 'seed',
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1', DISABLE_AUTOUPDATER: '1', DISABLE_TELEMETRY: '1',
      DISABLE_ERROR_REPORTING: '1', MAX_THINKING_TOKENS: '0', CLAUDE_CODE_MAX_OUTPUT_TOKENS: '256',
    },
  });
  let out = '';
  let err = '';
  child.stdout.on('data', (bytes) => { out += bytes; });
  child.stderr.on('data', (bytes) => { err += bytes; });
  const timer = setTimeout(() => child.kill('SIGKILL'), 120_000);
  const code = await new Promise((resolve) => { child.on('close', resolve); });
  clearTimeout(timer);
  check(code === 0, `the agent ends with 0, not ${code}: ${out}\n${err}`);
  return out.trim().split('\n').map((line) => JSON.parse(line));
}

// The agent asks with a temperature of its own: one candidate makes that greedy.
const server = await startServer(process.argv[2], [
  '--api-key', key, '-a', 'seed', '-np', '2', '-c', '8192', '--top-k', '1', '--chat-template-file', join(here, 'seedling.jinja')]);
try {
  const messages = await ask(server.url, 'What is the weather in Paris?');
  const blocks = messages.filter((message) => message.message?.content instanceof Array)
    .flatMap((message) => message.message.content);
  const call = blocks.find((block) => block.type === 'tool_use');
  check(call, `a call: ${JSON.stringify(messages)}`);
  checkEqual([call.name, call.input], ['mcp__weather__get_weather', { city: 'Paris' }], 'the call');
  const result = blocks.find((block) => block.type === 'tool_result');
  checkEqual([result.tool_use_id, JSON.stringify(result.content).includes('sunny')], [call.id, true], 'the result');
  const last = messages.at(-1);
  checkEqual([last.type, last.subtype, last.is_error], ['result', 'success', false], 'the end');
  check(last.result.length > 0, 'an answer');
} catch (error) {
  console.error(server.child.err.slice(-8000));
  throw error;
} finally {
  checkEqual(await server.stop(), 0, 'exit code of the server');
}
console.log('ok');
