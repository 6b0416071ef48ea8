// page.mjs SERVER_PROGRAM: the page in a headless Chromium against a server of the demo model: what a
// person does with it, with pointer and with keys, on a screen, a phone and at 200 % zoom, and what
// must not happen. Exits 77 where there is no browser.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { tmpdir } from 'node:os';

import { chatStream, findBrowser, launchBrowser } from './browser.mjs';
import { check, checkEqual, startServer } from './server.mjs';

const program = process.argv[2];
const only = process.argv[3];  // a part of a test's name
const key = 'secret-of-the-test';
const question = 'What is the capital of Japan?';
// Long enough to be stopped, and the same each time.
const endless = { extra: '{"ignore_eos": true}', sampling: { temperature: '0' } };

const browserPath = findBrowser();
if (!browserPath) {
  console.log('skipped: no Chromium here; install chromium-headless-shell or set BLOOMERY_BROWSER');
  process.exit(77);
}

const tests = [];
const test = (name, run, options = {}) => tests.push({ name, run, options });

// ---- helpers

const answers = (page) => page.locator('.message.assistant');
const lastAnswer = (page) => answers(page).last();
const complete = (page, state = 'done') => page.locator(`.message.assistant[data-state="${state}"]`).last().waitFor();

async function ask(page, text = question) {
  await page.fill('#composer', text);
  await page.press('#composer', 'Enter');
}

async function askAndWait(page, text = question) {
  const before = await answers(page).count();
  await ask(page, text);
  await answers(page).nth(before).waitFor();
  await complete(page);
}

async function newChat(page) {
  await page.getByRole('link', { name: 'New chat' }).click();
  await page.getByText('What shall we talk about?').waitFor();
}

const useSettings = (page, settings) =>
  page.addInitScript((given) => localStorage.setItem('bloomery.settings', given), JSON.stringify(settings));

// Answers that the demo model does not give: the same stream from a stand-in.
const answerWith = (page, deltas, finish) => page.route('**/v1/chat/completions', (route) =>
  route.fulfill({ contentType: 'text/event-stream', body: chatStream(deltas, finish) }));

const scrollsSideways = (page) => page.evaluate(() => document.documentElement.scrollWidth > window.innerWidth
  || document.body.scrollWidth > window.innerWidth
  || [...document.querySelectorAll('.scroller, .machine, .dialog')].some((e) => e.scrollWidth > e.clientWidth));

async function visible(locator, what) {
  await locator.waitFor({ state: 'visible' }).catch((error) => { throw new Error(`failed: not seen: ${what}: ${error.message}`); });
}

// ---- chat

test('a question is answered, streamed into the page', async ({ page, url }) => {
  await page.goto(url);
  await visible(page.getByText('What shall we talk about?'), 'the welcome');
  await askAndWait(page);
  check((await lastAnswer(page).innerText()).includes('Tokyo'), 'the answer names Tokyo');
  check(/\d tokens/.test(await lastAnswer(page).locator('.facts').innerText()), 'tokens are counted');
  checkEqual(await page.locator('.message.user .bubble').innerText(), question, 'the question is shown');
  checkEqual(await page.title(), `${question} · Bloomery`, 'the title of the tab');
  check(/#\/c\/[0-9a-f]+$/.test(page.url()), 'the conversation has an address');
});

test('an answer grows on the page, is stopped, and is written on', async ({ page, url }) => {
  await useSettings(page, endless);
  await page.goto(url);
  await ask(page);
  await page.locator('.message.assistant[data-state="streaming"] .markdown').waitFor();
  await page.getByRole('button', { name: 'Stop' }).click();
  await complete(page, 'stopped');
  await visible(page.getByText('Stopped.', { exact: true }).first(), 'that it was stopped');
  const text = await lastAnswer(page).locator('.markdown').innerText();
  check(text.length > 0, 'what was there stays');
  await page.waitForFunction(async () => !(await (await fetch('slots')).json()).some((slot) => slot.is_processing));
  await page.getByRole('button', { name: 'Write on' }).click();
  await page.locator('.message.assistant[data-state="streaming"]').waitFor();
  await page.keyboard.press('Escape');
  await complete(page, 'stopped');
  check((await lastAnswer(page).locator('.markdown').innerText()).startsWith(text.slice(0, 40)), 'it goes on behind the text');
  checkEqual(await answers(page).count(), 1, 'one answer');
});

test('retry and edit keep what was said as versions', async ({ page, url }) => {
  await page.goto(url);
  await askAndWait(page);
  await page.getByRole('button', { name: 'Another answer' }).click();
  await visible(lastAnswer(page).getByText('2 of 2'), 'the second answer');
  await complete(page);
  await lastAnswer(page).getByRole('button', { name: 'Earlier version' }).click();
  await visible(lastAnswer(page).getByText('1 of 2'), 'the first answer again');

  await page.getByRole('button', { name: 'Edit' }).first().click();
  await page.getByLabel('Edit this message').fill('What is the capital of France?');
  await page.keyboard.press('Control+Enter');
  await visible(page.locator('.message.user').getByText('2 of 2'), 'the edited question');
  await complete(page);
  checkEqual(await page.locator('.bubble').innerText(), 'What is the capital of France?', 'the edited question is shown');
  await page.locator('.message.user').getByRole('button', { name: 'Earlier version' }).click();
  checkEqual(await page.locator('.bubble').innerText(), question, 'the first question is still there');
  checkEqual(await answers(page).count(), 1, 'with one of its answers');
});

test('conversations outlive a reload, are renamed, deleted, and brought back', async ({ page, url }) => {
  await page.goto(url);
  await askAndWait(page);
  await newChat(page);
  await askAndWait(page, 'Hello!');
  const list = page.locator('#sidebar nav a');
  checkEqual(await list.count(), 2, 'two conversations');
  await page.reload();
  await visible(page.locator('.bubble', { hasText: 'Hello!' }), 'the shown conversation after a reload');
  await list.filter({ hasText: 'capital' }).click();
  await visible(lastAnswer(page).locator('.markdown', { hasText: 'Tokyo' }), 'the other conversation after a reload');

  await page.getByRole('button', { name: question }).click();
  await page.getByLabel('Title').fill('Dropped');
  await page.keyboard.press('Escape');
  checkEqual(await page.locator('h1').innerText(), question, 'Escape leaves the title as it was');
  await page.getByRole('button', { name: question }).click();
  await page.getByLabel('Title').fill('Capitals');
  await page.keyboard.press('Enter');
  await visible(list.filter({ hasText: 'Capitals' }), 'the new title in the list');
  await page.reload();
  await visible(list.filter({ hasText: 'Capitals' }), 'the new title after a reload');
  checkEqual(await list.filter({ hasText: 'Dropped' }).count(), 0, 'and no other');

  await page.getByRole('button', { name: 'Delete this conversation' }).click();
  await list.filter({ hasText: 'Capitals' }).waitFor({ state: 'detached' });
  await page.getByRole('button', { name: 'Undo' }).click();
  await visible(lastAnswer(page).locator('.markdown', { hasText: 'Tokyo' }), 'the conversation that was brought back');
});

test('conversations are exported, deleted, and imported', async ({ page, url }) => {
  await page.goto(url);
  await askAndWait(page);
  const settings = () => page.getByRole('button', { name: 'Settings' }).click();
  await settings();
  const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Export all' }).click()]);
  const text = readFileSync(await download.path(), 'utf8');
  checkEqual(JSON.parse(text).conversations.length, 1, 'one conversation in the file');
  await page.getByRole('button', { name: 'Delete all…' }).click();
  await page.getByRole('button', { name: 'Delete all', exact: true }).click();
  await visible(page.getByText('Conversations will be listed here.'), 'an empty list');
  await page.reload();
  await visible(page.getByText('Conversations will be listed here.'), 'an empty list after a reload');

  const file = join(tmpdir(), `bloomery-page-${process.pid}.json`);
  writeFileSync(file, text);
  await settings();
  await page.getByLabel('File to import').setInputFiles(file);
  await page.locator('#sidebar nav a', { hasText: 'capital' }).click();
  await visible(lastAnswer(page).locator('.markdown', { hasText: 'Tokyo' }), 'the imported conversation');
  for (const [bad, told] of [['{', 'not JSON'], ['{"format": 1}', 'no conversations'],
    [text.replace('"role": "user"', '"role": "root"'), 'no role'], [text.replace('"version": 1', '"version": 2'), 'version 2']]) {
    writeFileSync(file, bad);
    await settings();
    await page.getByLabel('File to import').setInputFiles(file);
    await visible(page.locator('.notice', { hasText: told }), `that the file is refused: ${told}`);
    await page.keyboard.press('Escape');
  }
  checkEqual(await page.locator('#sidebar nav a').count(), 1, 'nothing of the bad files is there');
});

test('two conversations are answered side by side', async ({ page, url }) => {
  await useSettings(page, endless);
  await page.goto(url);
  await ask(page);
  await page.locator('.message.assistant[data-state="streaming"]').waitFor();
  await newChat(page);
  await ask(page, 'Hello!');
  await page.locator('.message.assistant[data-state="streaming"]').waitFor();
  for (const name of ['Hello!', 'capital']) {
    await page.locator('#sidebar nav a', { hasText: name }).click();
    await page.locator('.bubble', { hasText: name }).waitFor();
    if (await page.getByRole('button', { name: 'Stop' }).count()) await page.keyboard.press('Escape');
    await page.locator('.message.assistant[data-state="streaming"]').waitFor({ state: 'detached' });
  }
});

test('a browser without settings begins with those of the server, and keeps its own', async ({ page, url }) => {
  await page.route('**/props', async (route) => {
    const answer = await route.fetch();
    await route.fulfill({ response: answer, json: { ...await answer.json(), ui_settings: { theme: 'dark', system: 'Be brief.', unknown: 1 } } });
  });
  const system = async () => {
    await page.getByRole('button', { name: 'Settings' }).click();
    return page.getByLabel('System prompt');
  };
  await page.goto(url);
  await page.locator('html[data-theme="dark"]').waitFor();
  checkEqual(await (await system()).inputValue(), 'Be brief.', 'the offered prompt');
  await page.getByLabel('System prompt').fill('Be long.');
  await page.keyboard.press('Escape');
  await page.reload();
  await page.locator('html[data-theme="dark"]').waitFor();
  checkEqual(await (await system()).inputValue(), 'Be long.', 'the browser has its own now');
});

test('what was chosen before the server has told its settings stays', async ({ page, url }) => {
  let answer;
  const held = new Promise((resolve) => { answer = resolve; });
  await page.route('**/props', async (route) => {
    const response = await route.fetch();
    await held;
    await route.fulfill({ response, json: { ...await response.json(), ui_settings: { theme: 'dark', system: 'Be brief.', effort: 'low' } } });
  });
  await page.goto(url);
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.getByLabel('System prompt').fill('Be long.');
  answer();
  await page.locator('html[data-theme="dark"]').waitFor();  // not chosen: the server's
  checkEqual(await page.getByLabel('System prompt').inputValue(), 'Be long.', 'the chosen prompt');
  await page.keyboard.press('Escape');
  await page.reload();
  await page.locator('html[data-theme="dark"]').waitFor();
  await page.getByRole('button', { name: 'Settings' }).click();
  checkEqual(await page.getByLabel('System prompt').inputValue(), 'Be long.', 'after a reload');
});

test('settings go into the request, and empty ones do not', async ({ page, url }) => {
  await page.goto(url);
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.getByLabel('System prompt').fill('Be brief.');
  await page.getByLabel('Temperature').fill('0');
  await page.getByLabel('Tokens of an answer, at most').fill('3');
  await page.getByLabel('Thinking').selectOption('off');
  await page.getByLabel('More fields').fill('{"stop": ["zzz"]}');
  await page.keyboard.press('Escape');
  const [request] = await Promise.all([page.waitForRequest('**/v1/chat/completions'), ask(page)]);
  const body = request.postDataJSON();
  checkEqual(body.messages, [{ role: 'system', content: 'Be brief.' }, { role: 'user', content: question }], 'messages');
  checkEqual([body.temperature, body.max_tokens, body.chat_template_kwargs, body.stop, body.top_k, body.tools],
    [0, 3, { enable_thinking: false }, ['zzz'], undefined, undefined], 'fields');
  await visible(page.getByText('Cut off: the limit of tokens is reached.'), 'why the answer ended');
  await page.reload();
  await page.getByRole('button', { name: 'Settings' }).click();
  checkEqual(await page.getByLabel('Temperature').inputValue(), '0', 'settings outlive a reload');
  await page.getByLabel('More fields').fill('{');
  await visible(page.getByText('More fields: not JSON'), 'what is wrong with a field');
});

test('reasoning is folded, tool calls are shown and answered', async ({ page, url }) => {
  await page.goto(url);
  await answerWith(page, [
    { reasoning_content: 'The weather is ' }, { reasoning_content: 'asked for.' }, { content: 'I look.' },
    { tool_calls: [{ index: 0, id: 'call_1', type: 'function', function: { name: 'weather', arguments: '' } }] },
    { tool_calls: [{ index: 0, function: { arguments: '{"city": ' } }] }, { tool_calls: [{ index: 0, function: { arguments: '"Oslo"}' } }] },
  ], 'tool_calls');
  await askAndWait(page, 'Weather in Oslo?');
  const thought = page.locator('.reasoning');
  check(!await thought.locator('.reasoning-text').isVisible(), 'reasoning is folded');
  await thought.locator('summary').click();
  checkEqual(await thought.locator('.reasoning-text').innerText(), 'The weather is asked for.', 'the reasoning');
  checkEqual(await page.locator('.call header code').innerText(), 'weather', 'the name of the tool');
  checkEqual(JSON.parse(await page.locator('.call pre').innerText()), { city: 'Oslo' }, 'its arguments');
  await page.unroute('**/v1/chat/completions');
  await answerWith(page, [{ content: 'It rains.' }]);
  await page.getByLabel('What it came to').fill('rain');
  const [request] = await Promise.all([
    page.waitForRequest('**/v1/chat/completions'), page.getByRole('button', { name: 'Send the result' }).click()]);
  checkEqual(request.postDataJSON().messages.slice(1), [
    { role: 'assistant', content: 'I look.', reasoning_content: 'The weather is asked for.',
      tool_calls: [{ id: 'call_1', type: 'function', function: { name: 'weather', arguments: '{"city": "Oslo"}' } }] },
    { role: 'tool', tool_call_id: 'call_1', content: 'rain' }], 'what the model gets');
  await visible(lastAnswer(page).getByText('It rains.'), 'the answer to the result');
});

test('an answer of Markdown is set as one', async ({ page, url }) => {
  await page.goto(url);
  const text = '# Title\n\nSome **bold** text.\n\n```python\ndef f():\n    return "x"  # note\n```\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n3. three\n4. four\n';
  await answerWith(page, Array.from(text, (content) => ({ content })));
  await askAndWait(page, 'Go');
  const answer = lastAnswer(page);
  checkEqual(await answer.locator('h1').innerText(), 'Title', 'a heading');
  checkEqual(await answer.locator('strong').innerText(), 'bold', 'strong text');
  checkEqual(await answer.locator('.hljs-keyword').first().innerText(), 'def', 'coloured code');
  checkEqual(await answer.locator('td').last().getAttribute('align'), 'right', 'a column on the right');
  checkEqual(await answer.locator('ol').getAttribute('start'), '3', 'a list that begins with three');
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  await answer.getByRole('button', { name: 'Copy this code' }).click();
  await answer.getByRole('button', { name: 'Copied' }).waitFor();
  checkEqual(await page.evaluate(() => navigator.clipboard.readText()), 'def f():\n    return "x"  # note', 'the copied code');
});

// ---- what goes wrong

test('a bad key is told plainly, and there is a way to give one', async ({ page, url, server }) => {
  await page.goto(url);
  await visible(page.getByText('This server asks for an API key'), 'that a key is needed');
  await page.getByLabel('API key').fill('wrong');
  await page.getByRole('button', { name: 'Use this key' }).click();
  await visible(page.getByText('The server does not know this key.'), 'that the key is wrong');
  await ask(page);
  await complete(page, 'error');
  await visible(page.getByText('The server refused the key.'), 'why the answer failed');
  await page.getByLabel('API key').fill(key);
  await page.getByRole('button', { name: 'Use this key' }).click();
  await page.getByText('This server asks for an API key').waitFor({ state: 'detached' });
  await page.getByRole('button', { name: 'Try again' }).click();
  await complete(page);
  check((await lastAnswer(page).innerText()).includes('Tokyo'), 'with the right key it is answered');
  await page.reload();
  await visible(page.locator('.server.ready'), 'the key outlives a reload of the tab');
  checkEqual(await page.evaluate(() => localStorage.getItem('bloomery.key')), null, 'and is not kept beyond it');
  check(!server.child.err.includes(key) && !server.child.err.includes('wrong'), 'no key in the log');
}, { args: ['--api-key', key], errors: /401/ });

test('a refusal and a server that goes away are told', async ({ page, url, server }) => {
  await page.goto(url);
  await visible(page.locator('.server.ready'), 'a server that is ready');  // its settings are taken by then
  await page.evaluate(() => localStorage.setItem('bloomery.settings', '{"extra": "{\\"temperature\\": \\"hot\\"}"}'));
  await page.reload();
  await ask(page);
  await complete(page, 'error');
  check((await page.locator('.ending').innerText()).includes('temperature'), 'the refusal names the field');
  await page.evaluate(() => localStorage.clear());
  await newChat(page);
  await page.reload();
  await visible(page.locator('.server.ready'), 'a server that is ready');
  await server.stop();
  await ask(page);
  await complete(page, 'error');
  await visible(page.getByText('The server cannot be reached.').first(), 'that the server is gone');
  await visible(page.locator('.server.offline'), 'the state of the server');
}, { errors: /400|ERR_CONNECTION|Failed to load/, ends: true });

test('while the model loads the page says so, and is ready by itself', async ({ page, url }) => {
  let loading = true;
  await page.route('**/props', (route) => (loading
    ? route.fulfill({ status: 503, json: { error: { code: 503, message: 'Loading model', type: 'unavailable_error' } } }) : route.continue()));
  await page.goto(url);
  await visible(page.getByText('The model is loading; this page looks again on its own.'), 'that it loads');
  loading = false;
  await visible(page.locator('.server.ready'), 'that it is ready');
}, { errors: /503/ });

test('a draft stays where it was written', async ({ page, url }) => {
  await page.goto(url);
  await askAndWait(page);
  await page.fill('#composer', 'half a question');
  await page.getByRole('link', { name: 'Machine' }).click();
  await visible(page.getByRole('heading', { name: 'Memory' }), 'the machine view');
  await page.goBack();
  checkEqual(await page.inputValue('#composer'), 'half a question', 'the draft');
  await newChat(page);
  checkEqual(await page.inputValue('#composer'), '', 'another box');
});

// ---- what must not happen

const EVIL = [
  '<script>window.hit = 1</script>', '<img src=x onerror="window.hit = 1">', '<svg onload="window.hit = 1"></svg>',
  '[link](javascript:window.hit=1)', '[link](data:text/html,<script>window.hit=1</script>)', '![pic](http://203.0.113.1/track.png)',
  '<iframe srcdoc="<script>parent.hit = 1</script>"></iframe>', '<a href="javascript:window.hit=1" onclick="window.hit = 1">x</a>',
  '<style>body { display: none }</style>', '<form action="http://203.0.113.1/"><button>go</button></form>', '<b onmouseover="window.hit=1">b</b>',
  '```html" onmouseover="window.hit=1\n<script>window.hit = 1</script>\n```', '`<img src=x onerror=window.hit=1>`',
  '[x]: javascript:window.hit=1\n\n[x]', '<math><mtext><table><mglyph><style><img src onerror=window.hit=1>', '<base href="http://203.0.113.1/">',
  '[a](/shutdown "t") <https://example.com/"onmouseover="window.hit=1>', '<input autofocus onfocus=window.hit=1>',
  '<details open ontoggle=window.hit=1>', '<meta http-equiv=refresh content="0;url=http://203.0.113.1/">',
];

test('text of a model and titles stay text, whatever they hold', async ({ page, url }) => {
  const outside = [];
  page.on('request', (request) => { if (!request.url().startsWith(url) && !request.url().startsWith('blob:')) outside.push(request.url()); });
  await page.goto(url);
  await answerWith(page, [{ reasoning_content: EVIL[1] }, { content: EVIL.join('\n\n') },
    { tool_calls: [{ index: 0, id: '1', function: { name: EVIL[1], arguments: EVIL[0] } }] }]);
  for (const evil of EVIL) {
    await newChat(page);
    await askAndWait(page, evil);  // also its title
  }
  await page.getByRole('button', { name: 'Another answer' }).click();
  await complete(page);
  const found = await page.evaluate(() => ({
    hit: window.hit,
    seen: getComputedStyle(document.body).display,
    elements: document.querySelectorAll('.message :is(script, img, iframe, object, embed, style, base, meta, math, svg:not(.icon), input, link)').length,
    forms: [...document.querySelectorAll('.message form')].filter((f) => !f.matches('.calls, .editor')).length,
    handlers: [...document.querySelectorAll('.message *, #sidebar *')].flatMap((e) => [...e.attributes]).filter((a) => /^on/i.test(a.name)).length,
    links: [...document.querySelectorAll('.markdown a')].map((a) => [a.getAttribute('href'), a.target, a.rel]),
  }));
  checkEqual([found.hit, found.seen, found.elements, found.forms, found.handlers], [undefined, 'block', 0, 0, 0], 'nothing ran, nothing got in');
  for (const [href, target, rel] of found.links) {
    check(href === null || /^https?:/.test(href), `a link leads to the web alone, not ${href}`);
    if (href !== null) checkEqual([target, rel], ['_blank', 'noopener noreferrer nofollow'], 'a link tells nothing');
  }
  check(found.links.length > 0, 'there are links');
  checkEqual(outside, [], 'nothing was fetched from elsewhere');
  await page.reload();
  await visible(page.locator('#sidebar nav a').first(), 'the titles after a reload');
  checkEqual(await page.evaluate(() => window.hit), undefined, 'nothing ran after a reload');
});

test('the policy stops what gets past the cleaning', async ({ page, url }) => {
  await page.goto(url);
  await visible(page.locator('.server.ready'), 'the page');
  const blocked = await page.evaluate(() => {
    const tried = [];
    try {
      document.createElement('div').innerHTML = '<b>x</b>';
      tried.push('innerHTML took a string');
    } catch { /* as it should be */ }
    const script = document.createElement('script');
    try {
      script.textContent = 'window.hit = 2';
      document.body.append(script);
    } catch { /* as it should be */ }
    return tried;
  });
  checkEqual([blocked, await page.evaluate(() => window.hit)], [[], undefined], 'no markup from strings, no inline script');
}, { errors: /Content Security Policy|TrustedHTML|TrustedScript|Trusted Type/ });

// ---- the machine view

test('the machine view shows what the server says', async ({ page, url }) => {
  await page.goto(url);
  await askAndWait(page);
  await page.getByRole('link', { name: 'Machine' }).click();
  const field = async (name) => {
    const found = page.locator(`[data-field="${name}"]`);
    await found.waitFor({ state: 'attached' });
    return { value: Number(await found.getAttribute('value')), text: await found.textContent() };
  };
  await field('bank.0.rows');
  const [props, slots, residency] = await page.evaluate(() => Promise.all(['props', 'slots', 'residency'].map(async (r) => (await fetch(r)).json())));
  checkEqual((await field('props.total_slots')).value, props.total_slots, 'slots');
  checkEqual((await field('props.n_ctx')).text, props.default_generation_settings.n_ctx.toLocaleString('en'), 'context');
  checkEqual((await field('props.engine.model.bytes')).value, props.engine.model.bytes, 'bytes of the weights');
  checkEqual((await field('slots.busy')).value, slots.filter((s) => s.is_processing).length, 'busy slots');
  for (const slot of slots) {
    checkEqual((await field(`slots.${slot.id}.n_ctx`)).value, slot.n_ctx, `context of slot ${slot.id}`);
    if (slot.n_prompt_tokens === undefined) continue;
    checkEqual((await field(`slots.${slot.id}.n_prompt_tokens`)).value, slot.n_prompt_tokens, `prompt of slot ${slot.id}`);
    checkEqual((await field(`slots.${slot.id}.n_prompt_tokens_cache`)).value, slot.n_prompt_tokens_cache, `cache of slot ${slot.id}`);
  }
  const [tier] = residency.tiers;
  checkEqual((await field('residency.0.used_bytes')).value, tier.used_bytes, 'planned memory');
  for (const c of tier.classes) checkEqual((await field(`residency.0.${c.name}`)).value, c.bytes, `memory of ${c.name}`);
  await page.getByText('The same as a table').click();
  for (const [i, bank] of residency.banks.entries()) {
    checkEqual((await field(`bank.${i}.rows`)).value, bank.rows.reduce((a, b) => a + b), `rows of bank ${i}`);
    checkEqual((await field(`bank.${i}.most`)).value, Math.max(...bank.rows), `rows of the busiest expert of bank ${i}`);
  }
  await page.locator('canvas.heat').focus();
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowRight');
  await visible(page.locator('#heat-said', { hasText: `expert 1: ${residency.banks[1].rows[1].toLocaleString('en')} rows` }), 'an expert in words');
  const colours = await page.locator('canvas.heat').evaluate((canvas) => {
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    return new Set(Array.from({ length: data.length / 4 }, (_, i) => data.slice(4 * i, 4 * i + 3).join())).size;
  });
  check(colours > 10, 'the map has colours');
  if (!props.endpoint_metrics) {
    await visible(page.getByText('This server offers no /metrics.').first(), 'what is not told');
    return;
  }
  const metrics = await page.evaluate(async () => (await fetch('metrics')).text());
  for (const name of ['tokens_predicted_total', 'prompt_tokens_total', 'prompt_tokens_cached_total', 'requests_deferred']) {
    checkEqual((await field(`metrics.${name}`)).value, Number(new RegExp(`^llamacpp:${name} (\\S+)`, 'm').exec(metrics)[1]), name);
  }
});

test('tokens a second are the difference of two looks at the counters', async ({ page, url }) => {
  let looks = 0;
  const from = Date.now();
  await page.route('**/props', async (route) => {
    const props = await (await route.fetch()).json();
    return route.fulfill({ json: { ...props, endpoint_metrics: true } });
  });
  // 1000 tokens a second, whenever it is asked.
  await page.route('**/metrics', (route) => {
    looks += 1;
    return route.fulfill({ contentType: 'text/plain', body: `# TYPE llamacpp:tokens_predicted_total counter
llamacpp:tokens_predicted_total ${Date.now() - from}
llamacpp:prompt_tokens_total 300\nllamacpp:prompt_tokens_cached_total 900\nllamacpp:requests_deferred 7\nother{a="b"} 1.5\n` });
  });
  await page.goto(`${url}/#/machine`);
  const value = async (name) => Number(await page.getByRole('region', { name: 'Tokens a second' }).locator(name).first().getAttribute('value'));
  await page.waitForFunction(() => document.querySelectorAll('.curve polyline').length > 0);
  const rate = await value('.large data');
  check(rate > 300 && rate < 3000, `about 1000 tokens a second, not ${rate}`);
  checkEqual(await page.locator('[data-field="metrics.requests_deferred"]').getAttribute('value'), '7', 'waiting requests');
  checkEqual(await page.getByRole('region', { name: 'Prompt cache' }).locator('.large').innerText(), '75 %', 'tokens taken over');
  await page.getByText('All of /metrics').click();
  await visible(page.getByText('other{a="b"}'), 'every metric');
  check(looks >= 3, 'it is asked again and again');
});

test('the machine view says what a server does not offer', async ({ page, url }) => {
  await page.goto(`${url}/#/machine`);
  await visible(page.getByText('This server offers no /slots.').first(), 'that there are no slots to see');
  checkEqual(await page.locator('[data-field^="slots."]').count(), 0, 'no number of slots is made up');
}, { args: ['--no-slots'] });

// ---- for everyone

test('everything can be done with keys alone', async ({ page, url }) => {
  await page.goto(url);
  await visible(page.locator('.server.ready'), 'the page');
  const focused = () => page.evaluate(() => document.activeElement?.id || document.activeElement?.textContent || document.activeElement?.ariaLabel);
  checkEqual(await focused(), 'composer', 'the message box has the focus at the start');
  await page.keyboard.type(question);
  await page.keyboard.press('Enter');
  await complete(page);
  await page.keyboard.press('Shift+Tab');  // from the box back over the message's buttons
  checkEqual(await page.evaluate(() => document.activeElement.ariaLabel), 'Another answer', 'the last button before the box');
  await page.keyboard.press('Enter');
  await visible(lastAnswer(page).getByText('2 of 2'), 'another answer by key');
  await complete(page);
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press('?');
  await visible(page.getByRole('dialog', { name: 'Shortcuts' }), 'the list of shortcuts');
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  await page.keyboard.press('Alt+KeyS');
  await visible(page.getByRole('dialog', { name: 'Settings' }), 'the settings');
  for (let i = 0; i < 60; ++i) await page.keyboard.press('Tab');
  check(await page.evaluate(() => document.activeElement === document.body || document.activeElement.closest('dialog') !== null), 'the focus stays in the dialog');
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  await page.keyboard.press('Alt+KeyM');
  await visible(page.getByRole('heading', { name: 'Memory' }), 'the machine view');
  await page.keyboard.press('Alt+KeyN');
  await visible(page.getByText('What shall we talk about?'), 'a new chat');
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press('/');
  checkEqual(await focused(), 'composer', 'the message box by key');

  // Each stop of the focus can be seen.
  await page.evaluate(() => document.activeElement.blur());
  for (let i = 0; i < 12; ++i) {
    await page.keyboard.press('Tab');
    const shown = await page.evaluate(() => {
      const at = document.activeElement;
      if (at === document.body) return true;
      const box = at.getBoundingClientRect();
      const style = getComputedStyle(at);
      const around = at.closest('.composer');
      return box.width > 0 && (style.outlineStyle !== 'none' || (around !== null && getComputedStyle(around).boxShadow !== 'none'));
    });
    check(shown, `stop ${i} of the focus is seen`);
  }
});

test('a screen reader hears the answer', async ({ page, url }) => {
  await page.goto(url);
  await askAndWait(page);
  const spoken = await page.locator('.hidden[role="status"]').innerText();
  check(spoken.includes('Tokyo') && spoken.includes('complete'), `the answer is said, not "${spoken}"`);
  const nameless = await page.evaluate(() => [...document.querySelectorAll('button, a, input, textarea, select')]
    .filter((e) => !(e.ariaLabel || e.textContent.trim() || e.labels?.length || e.title)).map((e) => e.outerHTML));
  checkEqual(nameless, [], 'every control has a name');
});

for (const [name, viewport] of [['a phone of 360 pixels', { width: 360, height: 740 }], ['1280 pixels at 200 % zoom', { width: 640, height: 400 }]]) {
  test(`${name}: nothing scrolls sideways, everything is in reach`, async ({ page, url }) => {
    await page.goto(url);
    const long = 'x'.repeat(300);
    await answerWith(page, [{ reasoning_content: long }, { content: `${long}\n\n\`\`\`c\n${long}\n\`\`\`\n\n| ${'a | '.repeat(20)}\n|${'--|'.repeat(20)}\n| ${'1 | '.repeat(20)}\n` },
      { tool_calls: [{ index: 0, id: '1', function: { name: 'tool', arguments: JSON.stringify({ long }) } }] }]);
    await askAndWait(page, long);
    check(!await scrollsSideways(page), 'the chat fits');
    const composer = await page.locator('#composer').boundingBox();
    check(composer.y + composer.height <= viewport.height, 'the message box is on the screen');
    await page.getByRole('button', { name: 'Conversations' }).click();
    await visible(page.getByRole('link', { name: 'Machine' }), 'the list');
    check(!await scrollsSideways(page), 'the list fits');
    await page.keyboard.press('Escape');
    await page.locator('#sidebar.open').waitFor({ state: 'detached' });
    await page.getByRole('button', { name: 'Conversations' }).click();
    await page.getByRole('button', { name: 'Settings' }).click();
    await visible(page.getByRole('dialog'), 'the settings');
    check(!await scrollsSideways(page), 'the settings fit');
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await page.keyboard.press('Alt+KeyM');
    await visible(page.getByRole('heading', { name: 'Memory' }), 'the machine view');
    await page.locator('canvas.heat').waitFor();
    check(!await scrollsSideways(page), 'the machine view fits');
  }, { context: { viewport, deviceScaleFactor: 2 } });
}

// Contrast of what stands on the page, of text as it is drawn (WCAG 2, level AA).
const faint = (page) => page.evaluate(() => {
  const parts = (colour) => colour.match(/[\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (e) => {
    for (let at = e; at; at = at.parentElement) {
      const colour = parts(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  return [...document.querySelectorAll('body *')].filter((e) => e.checkVisibility() && !e.closest('.hidden, :disabled, .skip')
    && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())).filter((e) => {
    const [a, b] = [light(parts(getComputedStyle(e).color)), light(behind(e))];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 4.5;
  }).map((e) => `${e.className || e.tagName}: ${e.textContent.slice(0, 30)}`);
});

for (const colorScheme of ['light', 'dark']) {
  test(`${colorScheme}: text stands out from its ground`, async ({ page, url }) => {
    await page.goto(url);
    await answerWith(page, [{ reasoning_content: 'thought' }, { content: 'Text `code` [link](https://example.com)\n\n> quote\n\n```python\n# note\ndef f(x: int) -> str:\n    return "a" + str(1)\n```\n' }]);
    await askAndWait(page, 'Go');
    await page.locator('.reasoning summary').click();
    checkEqual(await faint(page), [], 'the chat');
    await page.goto(`${url}/#/machine`);
    await page.locator('canvas.heat').waitFor();
    checkEqual(await faint(page), [], 'the machine view');
    await page.keyboard.press('Alt+KeyS');
    await visible(page.getByRole('dialog'), 'the settings');
    checkEqual(await faint(page), [], 'the settings');
    await page.getByLabel('Colours').selectOption(colorScheme === 'dark' ? 'light' : 'dark');
    const [r] = (await page.evaluate(() => getComputedStyle(document.body).backgroundColor)).match(/\d+/g).map(Number);
    check(colorScheme === 'dark' ? r > 128 : r < 128, 'the other colours by choice');
  }, { context: { colorScheme } });
}

test('nothing moves where that is asked for', async ({ page, url }) => {
  await useSettings(page, endless);
  await page.goto(url);
  await ask(page);
  await page.locator('.message.assistant[data-state="streaming"]').waitFor();
  const moving = await page.evaluate(() => document.getAnimations().filter((a) => a.playState === 'running').length);
  checkEqual(moving, 0, 'animations');
  await page.keyboard.press('Escape');
}, { context: { reducedMotion: 'reduce' } });

test('under a prefix the page finds everything', async ({ page, url }) => {
  await page.goto(`${url}/deep/er`);
  await askAndWait(page);
  check((await lastAnswer(page).innerText()).includes('Tokyo'), 'it is answered');
}, { args: ['--api-prefix', '/deep/er'] });

// ---- running them

const servers = new Map();  // by arguments
async function serverFor({ args = [], ends = false }) {
  const name = JSON.stringify(args);
  if (ends || !servers.has(name)) {
    const server = await startServer(program, ['-np', '2', '--temp', '0', ...args]);
    if (ends) return server;
    servers.set(name, server);
  }
  return servers.get(name);
}

if ((await (await fetch((await serverFor({})).url)).text()).includes('has no chat page')) {
  console.log('skipped: this build has no page (-DBLOOMERY_PAGE=ON)');
  process.exit(77);
}
const browser = await launchBrowser(browserPath);
let failed = 0;
for (const { name, run, options } of tests) {
  if (only && !name.includes(only)) continue;
  const server = await serverFor(options);
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options.context });
  const page = await context.newPage();
  page.setDefaultTimeout(60000);  // for everything: beside six builds on two cores a page takes 10 s to come up
  const errors = [];
  page.on('console', (message) => {
    if (message.type() === 'error' && !options.errors?.test(message.text())) errors.push(`${message.text()} ${message.location().url}`);
  });
  page.on('pageerror', (error) => { if (!options.errors?.test(error.message)) errors.push(error.stack); });
  const started = Date.now();
  try {
    await run({ page, url: server.url, server });
    checkEqual(errors, [], 'errors in the console');
    console.log(`ok ${name} (${Date.now() - started} ms)`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED ${name}: ${error.message}${errors.length ? `\nconsole: ${errors.join('\n')}` : ''}`);
    await page.screenshot({ path: `failed-${failed}.png` }).catch(() => {});
  }
  await context.close();
}
await browser.close();
for (const server of servers.values()) {
  if (await server.stop() !== 0) {
    failed += 1;
    console.log(`FAILED: a server did not end in order: ${server.child.err}`);
  }
}
console.log(`${failed} of ${tests.length} failed`);
process.exit(failed ? 1 : 0);
