// screenshots.mjs SERVER_PROGRAM FOLDER: the pictures of docs/images. The answers are a stand-in's, the
// numbers of the machine view the demo model's while it writes.
import { join } from 'node:path';

import { chatStream, findBrowser, launchBrowser } from './browser.mjs';
import { startServer } from './server.mjs';

const [program, folder] = process.argv.slice(2);
const question = 'How do I reverse a list in Python without changing it?';
const answer = `A **slice** with a negative step makes a new list:

\`\`\`python
def reversed_copy(items):
    """A new list, last item first."""
    return items[::-1]

numbers = [1, 2, 3]
print(reversed_copy(numbers))  # [3, 2, 1]
\`\`\`

| way | makes a new list |
|---|---|
| \`items[::-1]\` | yes |
| \`reversed(items)\` | no, an iterator |
| \`items.reverse()\` | no, changes it |
`;
const timings = { cache_n: 96, prompt_n: 22, predicted_n: 148, predicted_ms: 3274, predicted_per_second: 45.2 };

const server = await startServer(program, ['-np', '2', '-a', 'my-model']);
const browser = await launchBrowser(findBrowser());

async function chat(name, context) {
  const page = await (await browser.newContext(context)).newPage();
  await page.route('**/v1/chat/completions', (route) => route.fulfill({ contentType: 'text/event-stream',
    body: chatStream([{ reasoning_content: 'A slice copies; reverse() does not.' }, { content: answer }])
      .replace('data: [DONE]', `data: ${JSON.stringify({ choices: [], timings, usage: { completion_tokens: 148 } })}\n\ndata: [DONE]`) }));
  await page.goto(server.url);
  for (const text of ['A name for a bakery by the sea', 'What does top_p do?', question]) {
    await page.goto(`${server.url}/#/`);
    await page.getByText('What shall we talk about?').waitFor();
    await page.fill('#composer', text);
    await page.press('#composer', 'Enter');
    await page.locator('.message.assistant[data-state="done"]').waitFor();
  }
  await page.locator('.scroller').evaluate((e) => { e.scrollTop = 0; });
  await page.evaluate(() => document.activeElement.blur());
  await page.waitForTimeout(300);
  await page.screenshot({ path: join(folder, name) });
  await page.context().close();
}

async function machine(name, context) {
  const page = await (await browser.newContext(context)).newPage();
  await page.goto(`${server.url}/#/machine`);
  const writing = Array.from({ length: 40 }, (_, i) => i).reduce((before, i) => before.then(() => fetch(`${server.url}/v1/chat/completions`, {
    method: 'POST', body: JSON.stringify({ messages: [{ role: 'user', content: `What is the capital of Japan? ${i}` }], ignore_eos: true, max_tokens: 400 }) })
    .then((r) => r.text())), Promise.resolve());
  await page.waitForTimeout(9000);
  await page.screenshot({ path: join(folder, name) });
  await page.context().close();
  await writing;
}

await chat('page-light.png', { viewport: { width: 1180, height: 800 }, colorScheme: 'light' });
await chat('page-dark.png', { viewport: { width: 1180, height: 800 }, colorScheme: 'dark' });
await chat('page-phone.png', { viewport: { width: 360, height: 740 }, deviceScaleFactor: 1.5, colorScheme: 'light' });
await machine('page-machine.png', { viewport: { width: 1180, height: 1150 }, colorScheme: 'light' });
await browser.close();
await server.stop();
