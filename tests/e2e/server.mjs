// Starts bloomery-serve for a test and stops it: what every end-to-end script shares. No dependency.
import { spawn } from 'node:child_process';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

// Runs `program` with its own empty settings file, so that the machine's does not matter.
export function launch(program, args, options = {}) {
  const folder = mkdtempSync(join(tmpdir(), 'bloomery-'));
  const config = join(folder, 'serve.ini');
  writeFileSync(config, '');
  const child = spawn(program, args, {
    env: { ...process.env, BLOOMERY_CONFIG: config },
    stdio: ['pipe', 'pipe', 'pipe'],
    ...options,
  });
  child.stdin.on('error', () => {});  // a program may end without reading its input
  child.out = '';
  child.err = '';
  child.stdout.on('data', (bytes) => { child.out += bytes; });
  child.stderr.on('data', (bytes) => { child.err += bytes; });
  child.ended = new Promise((resolve) => child.on('close', (code, signal) => resolve({ code, signal })));
  return child;
}

// A server on a free port; resolves once it serves.
export async function startServer(program, args = []) {
  const child = launch(program, ['--port', '0', ...args]);
  const url = await new Promise((resolve, reject) => {
    const look = () => {
      const found = /listening on (http:\S+)/.exec(child.out);
      if (found) resolve(found[1]);
    };
    child.stdout.on('data', look);
    child.on('close', (code) => reject(new Error(`the server ended with ${code}: ${child.err}`)));
  });
  return {
    url,
    child,
    // The exit code after an orderly stop.
    async stop() {
      child.kill('SIGTERM');
      return (await child.ended).code;
    },
  };
}

export function check(condition, what) {
  if (!condition) throw new Error(`failed: ${what}`);
}

export function checkEqual(actual, expected, what) {
  const a = JSON.stringify(actual);
  const e = JSON.stringify(expected);
  if (a !== e) throw new Error(`failed: ${what}: ${a} instead of ${e}`);
}
