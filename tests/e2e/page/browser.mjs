// A headless Chromium for tests: Debian's headless shell, or another one of the family that is there.
import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';

import { chromium } from 'playwright-core';

const NAMES = ['chromium-headless-shell', 'chromium', 'chromium-browser', 'google-chrome'];

// Its path ($BLOOMERY_BROWSER comes first), or null.
export function findBrowser() {
  if (process.env.BLOOMERY_BROWSER) return process.env.BLOOMERY_BROWSER;
  for (const name of NAMES) {
    for (const folder of process.env.PATH.split(delimiter)) {
      try {
        accessSync(join(folder, name), constants.X_OK);
        return join(folder, name);
      } catch {
        // not here
      }
    }
  }
  return null;
}

// No sandbox of its own as root, where it has none; nothing is fetched but from the server under test.
export function launchBrowser(path) {
  return chromium.launch({
    executablePath: path, headless: true, args: ['--no-sandbox', '--disable-dev-shm-usage', '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1'],
  });
}

// A stream of chat chunks as the server writes them, for answers that no small model gives.
export function chatStream(deltas, finish = 'stop') {
  const chunk = (choice) => `data: ${JSON.stringify({
    id: 'chatcmpl-test', object: 'chat.completion.chunk', created: 1, model: 'stand-in', choices: [{ index: 0, finish_reason: null, ...choice }],
  })}\n\n`;
  return `${chunk({ delta: { role: 'assistant', content: null } })}${deltas.map((delta) => chunk({ delta })).join('')}`
    + `${chunk({ delta: {}, finish_reason: finish })}data: [DONE]\n\n`;
}
