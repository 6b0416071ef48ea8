// acceptance.mjs SERVER_PROGRAM [NUMBER...]: the acceptance checks of serving by their numbers (docs/checks.md),
// over HTTP against the demo model. Each prints a line; what only a fault or another program can show has its
// test elsewhere.
import { check, checkEqual, startServer } from '../server.mjs';

const program = process.argv[2];
const wanted = new Set(process.argv.slice(3).map(Number));
const checks = [];
const add = (number, title, run) => checks.push({ number, title, run });

async function request(url, method, path, body, headers = {}) {
  const answer = await fetch(url + path, {
    method, headers, body: body === undefined || typeof body === 'string' ? body : JSON.stringify(body),
  });
  const text = await answer.text();
  let json = null;
  try { json = JSON.parse(text); } catch { /* a stream, or a page */ }
  return { status: answer.status, headers: answer.headers, text, json };
}

async function withServer(args, run) {
  const server = await startServer(program, args);
  try {
    await run({
      url: server.url,
      get: (path, headers) => request(server.url, 'GET', path, undefined, headers),
      post: (path, body, headers) => request(server.url, 'POST', path, body, headers),
    });
  } catch (error) {
    console.error(server.child.err.slice(-4000));
    throw error;
  } finally {
    checkEqual(await server.stop(), 0, 'exit code');
  }
}

// The events of a stream: those of OpenAI and llama-server, or named ones.
function events(text) {
  const parts = text.split('\n\n').filter((part) => part !== '' && part !== ':');
  const done = parts.at(-1) === 'data: [DONE]';
  if (done) parts.pop();
  return { done, list: parts.map((part) => JSON.parse(part.split('\n').at(-1).slice('data: '.length))) };
}

function refused(answer, status, type, words = '') {
  checkEqual([answer.status, answer.json?.error?.type], [status, type], `a refusal: ${answer.text.slice(0, 300)}`);
  checkEqual(answer.json.error.code, status, 'the code in the body');
  check(answer.json.error.message.includes(words), `'${answer.json.error.message}' names ${words}`);
}

const user = (content) => [{ role: 'user', content }];
const capital = user('What is the capital of Japan?');
const greedy = { temperature: 0 };
const weather = {
  name: 'get_weather', description: 'Weather of a city',
  parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
};
const weatherTool = [{ type: 'function', function: weather }];
const prompt = '<|im_start|>user\nTell a story about Sam and a glacier.<|im_end|>\n<|im_start|>assistant\n';
const story = { prompt, n_predict: 24, ignore_eos: true };

// ---- server, models, props, slots

add(2, 'an unknown path is 404', async ({ get }) => refused(await get('/nope'), 404, 'not_found_error', 'File Not Found'));

add(3, 'the first alias in sorted order is the id, and all are listed', async () => {
  await withServer(['-a', 'zeta,alpha,mid'], async ({ get }) => {
    const { data } = (await get('/v1/models')).json;
    checkEqual([data.length, data[0].id, data[0].aliases.sort()], [1, 'alpha', ['alpha', 'mid', 'zeta']], 'models');
  });
});

add(4, 'props tell slots, context, seed and path', async () => {
  await withServer(['-np', '3', '-c', '3072', '--seed', '77'], async ({ get }) => {
    const props = (await get('/props')).json;
    checkEqual([props.total_slots, props.default_generation_settings.n_ctx, props.default_generation_settings.params.seed],
               [3, 1024, 77], 'props');
    check(props.model_path.endsWith('.gguf'), props.model_path);
  });
});

add(5, 'slots before the first request have no params, and --no-slots is 501', async () => {
  await withServer(['-np', '2'], async ({ get }) => {
    const slots = (await get('/slots')).json;
    checkEqual(slots.map((slot) => [typeof slot.n_ctx, 'params' in slot]), [['number', false], ['number', false]], 'slots');
  });
  await withServer(['--no-slots'], async ({ get }) => refused(await get('/slots'), 501, 'not_supported_error'));
});

// Runs `count` endless streams, calls `during` once all of them generate, and leaves them.
async function whileRunning(server, count, during) {
  const leave = new AbortController();
  const readers = await Promise.all(Array.from({ length: count }, async () => {
    const answer = await fetch(`${server.url}/completion`, {
      method: 'POST', signal: leave.signal,
      body: JSON.stringify({ prompt, n_predict: -1, ignore_eos: true, stream: true, cache_prompt: false }),
    });
    const reader = answer.body.getReader();
    await reader.read();
    return reader;
  }));
  try { return await during(); } finally {
    leave.abort();
    await Promise.allSettled(readers.map((reader) => reader.closed));
  }
}

async function idle(get, within = 2000) {
  const until = Date.now() + within;
  for (;;) {
    const slots = (await get('/slots')).json;
    if (slots.every((slot) => !slot.is_processing)) return slots;
    check(Date.now() < until, 'all slots are idle in time');
  }
}

add(6, 'fail_on_no_slot is 503 only when all slots are busy', async () => {
  await withServer(['-np', '2', '-c', '8192'], async (server) => {
    await whileRunning(server, 1, async () => checkEqual((await server.get('/slots?fail_on_no_slot=1')).status, 200, 'one idle'));
    await idle(server.get);
    await whileRunning(server, 2, async () =>
      refused(await server.get('/slots?fail_on_no_slot=1'), 503, 'unavailable_error'));
  });
});

add(7, 'busy slots are counted', async () => {
  await withServer(['-np', '2', '-c', '8192'], async (server) => {
    const busy = async () => (await server.get('/slots')).json.filter((slot) => slot.is_processing).length;
    checkEqual(await whileRunning(server, 2, busy), 2, 'two requests');
    await idle(server.get);
    checkEqual(await whileRunning(server, 1, busy), 1, 'one request');
  });
});

add(8, 'after its request a slot is idle with nothing decoded', async ({ get, post }) => {
  await post('/completion', { ...story, n_predict: 4 });
  const used = (await idle(get)).find((slot) => 'next_token' in slot);
  checkEqual([used.is_processing, used.next_token[0].n_remain, used.next_token[0].n_decoded], [false, -1, 0], 'the slot');
});

// ---- keys and origins

add(10, 'a key is asked for everywhere but at /health', async () => {
  await withServer(['--api-key', 'k1,k2'], async ({ get, post }) => {
    refused(await get('/v1/models'), 401, 'authentication_error', 'Invalid API Key');
    refused(await post('/completion', { prompt: 'x' }, { Authorization: 'Bearer no' }), 401, 'authentication_error');
    checkEqual((await get('/v1/models', { Authorization: 'Bearer k2' })).status, 200, 'as a bearer');
    checkEqual((await get('/v1/models', { 'X-Api-Key': 'k1' })).status, 200, 'as X-Api-Key');
    checkEqual((await get('/health')).status, 200, 'health');
  });
});

add(11, 'a preflight needs no key and echoes the origin', async () => {
  await withServer(['--api-key', 'k'], async ({ url }) => {
    const answer = await request(url, 'OPTIONS', '/completions', undefined, {
      Origin: 'web.mydomain.fr', 'Access-Control-Request-Method': 'POST', 'Access-Control-Request-Headers': 'Authorization',
    });
    checkEqual(answer.status, 200, 'status');
    checkEqual(['origin', 'credentials', 'methods', 'headers'].map((name) => answer.headers.get(`access-control-allow-${name}`)),
               ['web.mydomain.fr', 'true', 'GET, POST, DELETE, OPTIONS', '*'], 'headers');
  });
});

add(12, 'with --cors-origins localhost an IPv6 loopback origin is echoed', async () => {
  await withServer(['--cors-origins', 'localhost'], async ({ get }) => {
    const origin = async (name) => (await get('/health', { Origin: name })).headers.get('access-control-allow-origin');
    checkEqual(await origin('http://[::1]:3000'), 'http://[::1]:3000', 'local');
    checkEqual(await origin('http://localhost.example.org'), null, 'another');
  });
});

// ---- /completion

add(13, 'n_predict 8 gives 8 tokens and stops at the limit', async ({ post }) => {
  const plain = (await post('/completion', { ...story, n_predict: 8 })).json;
  checkEqual([plain.timings.predicted_n, plain.stop_type, plain.truncated, typeof plain.has_new_line, plain.tokens],
             [8, 'limit', false, 'boolean', []], 'the result');
  checkEqual((await post('/completion', { ...story, n_predict: 8, return_tokens: true })).json.tokens.length, 8, 'ids');
});

add(14, 'a stream joins to the whole answer and has no [DONE]', async ({ post }) => {
  const whole = (await post('/completion', { ...story, ...greedy })).json;
  const { done, list } = events((await post('/completion', { ...story, ...greedy, stream: true })).text);
  check(!done, 'no [DONE]');
  for (const event of list) check(typeof event.stop === 'boolean', 'stop is a boolean');
  for (const event of list.slice(0, -1)) check(event.tokens.length > 0, 'tokens of an event');
  checkEqual(list.map((event) => event.content).join(''), whole.content, 'the text');
});

add(15, 'greedy texts repeat, seeds differ, and batches do not matter', async ({ post }) => {
  const texts = async (fields, list) => {
    const all = [];
    for (const seed of list) all.push((await post('/completion', { ...story, ...fields, seed })).json.content);
    return all;
  };
  checkEqual(new Set(await texts(greedy, [5, 5, 5, 5])).size, 1, 'greedy');
  const drawn = await texts({ temperature: 1, top_k: 0, top_p: 1, min_p: 0 }, [0, 1, 2, 3]);
  for (let i = 1; i < 4; i += 1) check(drawn[i] !== drawn[i - 1], 'neighbouring seeds differ');
  const batched = [];
  for (const size of ['16', '32']) {
    await withServer(['-b', size, '-ub', size], async (server) => {
      batched.push((await server.post('/completion', { ...story, ...greedy })).json.content);
    });
  }
  checkEqual(batched[0], batched[1], 'batches of 16 and 32');
});

add(16, 'a prompt as ids says what its text says', async ({ post }) => {
  const { tokens } = (await post('/tokenize', { content: prompt, add_special: true })).json;
  checkEqual((await post('/completion', { ...story, ...greedy, prompt: tokens })).json.content,
             (await post('/completion', { ...story, ...greedy })).json.content, 'the text');
});

add(17, 'two prompts give an array of two results', async ({ post }) => {
  const { tokens } = (await post('/tokenize', { content: prompt })).json;
  const results = (await post('/completion', { ...story, ...greedy, prompt: [tokens, tokens] })).json;
  checkEqual([results.length, results[0].content === results[1].content], [2, true], 'results');
});

add(18, 'a prompt object is taken, its media are refused', async ({ post }) => {
  checkEqual((await post('/completion', { ...story, prompt: { prompt_string: prompt } })).status, 200, 'text');
  refused(await post('/completion', { ...story, prompt: { prompt_string: prompt, multimodal_data: ['AA=='] } }),
          400, 'invalid_request_error', 'multimodal_data');
});

add(19, 'a prompt longer than the slot is refused with the numbers', async () => {
  await withServer(['-c', '256'], async ({ post }) => {
    for (const stream of [false, true]) {
      const answer = await post('/completion', { prompt: 'word '.repeat(400), stream });
      refused(answer, 400, 'exceed_context_size_error');
      checkEqual(answer.json.error.n_ctx, 256, 'n_ctx');
      check(answer.json.error.n_prompt_tokens > 256, 'n_prompt_tokens');
    }
  });
});

add(20, 'without a limit the context is filled and the answer truncated', async () => {
  await withServer(['-c', '128'], async ({ post }) => {
    const result = (await post('/completion', { ...story, n_predict: -1 })).json;
    checkEqual([result.tokens_predicted, result.truncated, result.stop_type], [128 - result.tokens_evaluated, true, 'limit'],
               'the result');
  });
});

add(21, 'n_probs gives an entry a token with the greedy token first', async ({ post }) => {
  const result = (await post('/completion', { ...story, ...greedy, n_predict: 5, n_probs: 10, return_tokens: true })).json;
  checkEqual(result.completion_probabilities.length, 5, 'entries');
  result.completion_probabilities.forEach((entry, i) => {
    check(typeof entry.token === 'string' && Array.isArray(entry.bytes) && entry.logprob <= 0, 'the fields of an entry');
    checkEqual([entry.top_logprobs.length, entry.top_logprobs[0].id, entry.id], [10, result.tokens[i], result.tokens[i]], 'tops');
  });
});

add(22, 'post_sampling_probs are probabilities of what the chain left', async ({ post }) => {
  const result = (await post('/completion', {
    ...story, n_predict: 5, n_probs: 10, post_sampling_probs: true, temperature: 1, seed: 3 })).json;
  for (const entry of result.completion_probabilities) {
    check(entry.prob > 0 && entry.prob <= 1, `prob ${entry.prob}`);
    const sum = entry.top_probs.reduce((all, top) => all + top.prob, 0);
    check(entry.top_probs.every((top) => top.prob > 0), 'no zero entries');
    check(entry.top_probs.length === 10 || Math.abs(sum - 1) < 1e-3, `${entry.top_probs.length} entries, sum ${sum}`);
  }
});

add(23, 'words with a bias of -100 do not occur, as ids, texts or an object', async ({ post }) => {
  const free = (await post('/completion', { ...story, ...greedy })).json.content;
  const words = [' Sam', ' glacier'];
  check(words.some((word) => free.includes(word)), `the free text has a word: ${free}`);
  const ids = [];
  for (const content of words) ids.push(...(await post('/tokenize', { content })).json.tokens);
  for (const bias of [ids.map((id) => [id, -100]), words.map((word) => [word, -100]),
                      Object.fromEntries(words.map((word) => [word, -100]))]) {
    const text = (await post('/completion', { ...story, ...greedy, logit_bias: bias })).json.content;
    for (const word of words) check(!text.includes(word), `no '${word}' in '${text}'`);
  }
});

add(24, 'a stop string ends the content before it and is named', async ({ post }) => {
  const free = (await post('/completion', { ...story, ...greedy })).json.content;
  const word = free.slice(10, 16);
  const result = (await post('/completion', { ...story, ...greedy, stop: [word] })).json;
  checkEqual([result.content, result.stop_type, result.stopping_word], [free.slice(0, free.indexOf(word)), 'word', word],
             'the result');
});

add(25, 'a client that leaves frees its slot, which keeps its prompt', async () => {
  await withServer(['-c', '4096'], async (server) => {
    await whileRunning(server, 1, async () => {});
    await idle(server.get, 2000);
    check((await server.post('/completion', { ...story, n_predict: 1 })).json.timings.cache_n > 0, 'cache_n');
  });
});

add(26, 'cache_prompt evaluates one token again, without it all, with equal texts', async ({ post }) => {
  const body = { ...story, ...greedy, id_slot: 0 };
  const first = (await post('/completion', { ...body, cache_prompt: false })).json;
  const second = (await post('/completion', body)).json;
  const third = (await post('/completion', { ...body, cache_prompt: false })).json;
  checkEqual([second.timings.prompt_n, third.timings.prompt_n], [1, first.tokens_evaluated], 'evaluated');
  checkEqual([second.content, third.content], [first.content, first.content], 'texts');
});

add(27, 'a grammar is the whole answer; a broken one is refused with line and column', async ({ post }) => {
  const body = { ...story, n_predict: 32, grammar: 'root ::= "a"{5,5}' };
  for (const temperature of [0, 1]) {
    const { content, stop_type } = (await post('/completion', { ...body, temperature })).json;
    checkEqual([content, stop_type], ['aaaaa', 'eos'], 'the content');
  }
  refused(await post('/completion', { ...body, grammar: 'root ::= "a' }), 400, 'invalid_request_error', 'line 1, column 12');
});

add(28, 'top_k 1 is greedy; an empty list of samplers and an unknown name are taken', async ({ post }) => {
  const text = (await post('/completion', { ...story, ...greedy })).json.content;
  checkEqual((await post('/completion', { ...story, temperature: 1, top_k: 1 })).json.content, text, 'the text');
  checkEqual((await post('/completion', { ...story, samplers: [] })).status, 200, 'an empty list');
  checkEqual((await post('/completion', { ...story, samplers: ['top_k', 'frobnicate'] })).status, 200, 'an unknown name');
});

add(29, 'values out of range are refused by name, null is absent', async ({ post }) => {
  for (const [name, value] of [['repeat_penalty', 0], ['dry_sequence_breakers', []], ['n_predict', -2]]) {
    refused(await post('/completion', { prompt: 'x', n_predict: 1, [name]: value }), 400, 'invalid_request_error', name);
  }
  refused(await post('/completion', '{"prompt":"x","n_predict":1,"repeat_penalty":1e400}'), 400, 'invalid_request_error');
  checkEqual((await post('/completion', { ...story, temperature: null, stop: null, n_probs: null })).status, 200, 'null');
});

add(30, 'top_p 5 is clamped', async ({ post }) => {
  checkEqual((await post('/completion', { ...story, top_p: 5 })).status, 200, 'status');
});

// ---- /v1/completions

add(31, 'a text completion has its shape; its stream ends with a finish reason and [DONE]', async ({ post }) => {
  const body = { prompt: 'The capital of', max_tokens: 4, ...greedy };
  const whole = (await post('/v1/completions', body)).json;
  checkEqual([whole.object, whole.choices[0].finish_reason], ['text_completion', 'length'], 'the answer');
  check(whole.system_fingerprint.startsWith('b') && whole.choices[0].text.length > 0, 'fingerprint and text');
  const { done, list } = events((await post('/v1/completions', { ...body, stream: true })).text);
  check(done, '[DONE]');
  checkEqual([list.at(-1).choices[0].finish_reason, list.map((event) => event.choices[0].text).join('')],
             ['length', whole.choices[0].text], 'the stream');
});

add(32, 'echo, suffix, best_of and no prompt are refused', async ({ post }) => {
  for (const fields of [{ echo: true }, { suffix: 'x' }, { best_of: 2 }]) {
    refused(await post('/v1/completions', { prompt: 'x', ...fields }), 400, 'invalid_request_error', Object.keys(fields)[0]);
  }
  refused(await post('/v1/completions', {}), 400, 'invalid_request_error', 'prompt');
});

// ---- /v1/chat/completions

const chat = { messages: capital, max_tokens: 32, ...greedy };

add(33, 'a chat has its shape and a constant number of prompt tokens', async ({ post }) => {
  const answers = [];
  for (let i = 0; i < 2; i += 1) answers.push((await post('/v1/chat/completions', chat)).json);
  checkEqual(answers[0].usage.prompt_tokens, answers[1].usage.prompt_tokens, 'prompt tokens');
  checkEqual(answers[0].choices[0].message.role, 'assistant', 'role');
  check(answers[0].id.includes('cmpl'), answers[0].id);
});

add(34, 'a chat stream: role first, one id, finish without content, usage, [DONE]', async ({ post }) => {
  const { done, list } = events((await post('/v1/chat/completions', {
    ...chat, stream: true, stream_options: { include_usage: true } })).text);
  check(done, '[DONE]');
  checkEqual(list[0].choices[0].delta, { role: 'assistant', content: null }, 'the first delta');
  check(list.slice(1).every((event) => !event.choices[0]?.delta.role), 'no role later');
  checkEqual(new Set(list.map((event) => event.id)).size, 1, 'one id');
  checkEqual([list.at(-2).choices[0].finish_reason, list.at(-2).choices[0].delta], ['stop', {}], 'the finish chunk');
  checkEqual(list.at(-1).choices, [], 'the usage chunk');
  check(list.at(-1).usage.total_tokens > 0, 'usage');
});

add(35, 'timings ride on the usage chunk and not on the first', async ({ post }) => {
  const { list } = events((await post('/v1/chat/completions', {
    ...chat, stream: true, stream_options: { include_usage: true }, timings_per_token: true })).text);
  checkEqual(['timings' in list[0], 'timings' in list.at(-1)], [false, true], 'timings');
});

add(36, 'response_format gives JSON that fits; others are refused', async ({ post }) => {
  const ask = async (response_format, more = {}) => post('/v1/chat/completions', {
    ...chat, max_tokens: 300, response_format, ...more });
  const content = (answer) => answer.json.choices[0].message.content;
  for (const max_tokens of [6, 300]) {
    const answer = await ask({ type: 'json_schema', json_schema: { schema: { const: '42' } } }, { max_tokens });
    checkEqual(content(answer), '"42"', 'a constant');
  }
  // Bounded, so that a model that has nothing to say ends in time.
  const schema = { type: 'object', required: ['name', 'age', 'tags'], properties: {
    name: { type: 'string', minLength: 1, maxLength: 10 }, age: { type: 'integer', minimum: 0, maximum: 150 },
    tags: { type: 'array', items: { enum: ['a', 'b'] }, minItems: 1, maxItems: 3 } } };
  for (const seed of [0, 1, 2, 3]) {
    for (const temperature of [0, 1.5]) {
      const person = JSON.parse(content(await ask({ type: 'json_schema', json_schema: { schema } }, { seed, temperature })));
      checkEqual(Object.keys(person), ['name', 'age', 'tags'], 'the keys');
      check([...person.name].length >= 1 && [...person.name].length <= 10, `the name: ${person.name}`);
      check(Number.isInteger(person.age) && person.age >= 0 && person.age <= 150, `the age: ${person.age}`);
      check(person.tags.length >= 1 && person.tags.length <= 3, 'tags');
      check(person.tags.every((tag) => ['a', 'b'].includes(tag)), 'each tag');
    }
  }
  const object = await ask({ type: 'json_object', schema: { additionalProperties: false } });
  checkEqual(JSON.parse(content(object)), {}, 'an object');
  refused(await ask({ type: 'sound' }), 400, 'invalid_request_error', 'response_format');
  refused(await ask({ type: 'json_schema', json_schema: { schema: 123 } }), 400, 'invalid_request_error', 'schema');
  refused(await ask({ type: 'json_schema', json_schema: { schema: { type: 'hiccup' } } }), 400, 'invalid_request_error', 'hiccup');
});

add(37, 'fields that contradict each other are refused', async ({ post }) => {
  refused(await post('/v1/chat/completions', { ...chat, json_schema: {}, grammar: 'root ::= "a"' }), 400, 'invalid_request_error');
  refused(await post('/v1/chat/completions', { ...chat, tools: weatherTool, grammar: 'root ::= "a"' }), 400, 'invalid_request_error');
  refused(await post('/v1/chat/completions', { ...chat, top_logprobs: 2 }), 400, 'invalid_request_error', 'top_logprobs');
  refused(await post('/v1/chat/completions', { ...chat, tools: weatherTool, logprobs: true, stream: true }),
          400, 'invalid_request_error', 'logprobs');
});

add(38, 'bad messages are refused', async ({ post }) => {
  const assistant = { role: 'assistant', content: 'x' };
  for (const messages of [null, 'text', [123], [{}], [{ role: 123 }], [{ role: 'user', content: 123 }],
                          [...capital, assistant, assistant]]) {
    refused(await post('/v1/chat/completions', { messages }), 400, 'invalid_request_error');
  }
});

add(39, 'a trailing assistant message is continued', async ({ post }) => {
  const messages = [...capital, { role: 'assistant', content: 'The capital is' }];
  check((await post('/apply-template', { messages })).json.prompt.endsWith('The capital is'), 'the prompt');
  refused(await post('/apply-template', { messages, add_generation_prompt: true, continue_final_message: true }),
          400, 'invalid_request_error', 'continue_final_message');
});

add(40, 'n 2 gives two choices, twice, also on a named slot', async () => {
  await withServer(['-np', '2'], async ({ post }) => {
    for (let i = 0; i < 2; i += 1) {
      const { choices } = (await post('/v1/chat/completions', { ...chat, n: 2, id_slot: 0 })).json;
      checkEqual(choices.map((choice) => choice.index), [0, 1], 'indices');
    }
  });
});

add(41, 'a required call is made and fits its schema, whatever was asked', async ({ post }) => {
  for (const choice of ['required', { type: 'function', function: { name: weatherTool[0].function.name } }]) {
    const body = { messages: user('The capital of Japan is'), tools: weatherTool, tool_choice: choice,
                   parallel_tool_calls: false, max_tokens: 128, ...greedy };
    const { finish_reason: reason, message } = (await post('/v1/chat/completions', body)).json.choices[0];
    checkEqual([reason, message.tool_calls.length], ['tool_calls', 1], 'one call');
    const given = JSON.parse(message.tool_calls[0].function.arguments);
    checkEqual([Object.keys(given), typeof given.city], [['city'], 'string'], 'the arguments of the schema');
  }
});

add(42, 'a streamed call has id, type and name once, and pieces that join to the arguments', async ({ post }) => {
  const body = { messages: user('What is the weather in Paris?'), tools: weatherTool, max_tokens: 64, ...greedy };
  const whole = (await post('/v1/chat/completions', body)).json.choices[0];
  checkEqual(whole.finish_reason, 'tool_calls', 'finish reason');
  const { list } = events((await post('/v1/chat/completions', { ...body, stream: true })).text);
  const pieces = list.flatMap((event) => event.choices[0]?.delta.tool_calls ?? []);
  checkEqual([pieces.filter((piece) => piece.id).length, pieces.filter((piece) => piece.type).length,
              pieces.filter((piece) => piece.function.name).length], [1, 1, 1], 'what comes once');
  checkEqual(pieces.map((piece) => piece.function.arguments ?? '').join(''), whole.message.tool_calls[0].function.arguments,
             'the arguments');
});

add(43, 'tool_choice none gives no calls, and a bogus one is refused', async ({ post }) => {
  const body = { messages: user('What is the weather in Paris?'), tools: weatherTool, max_tokens: 64, ...greedy };
  const { message } = (await post('/v1/chat/completions', { ...body, tool_choice: 'none' })).json.choices[0];
  check(!message.tool_calls, 'no calls');
  check(!message.content.includes('<tool_call>'), `no markup: ${message.content}`);
  refused(await post('/v1/chat/completions', { ...body, tool_choice: 'bogus' }), 400, 'invalid_request_error', 'tool_choice');
});

add(46, 'a reasoning budget ends the thinking', async ({ post }) => {
  // Its first word is given, so that the model does think.
  const messages = [...user('Write JSON for a person. Name Vera, age 36, likes river.'),
                    { role: 'assistant', content: '', reasoning_content: 'I' }];
  const body = { messages, max_tokens: 64, ...greedy };
  const answer = async (fields) => (await post('/v1/chat/completions', { ...body, ...fields })).json.choices[0].message;
  const free = await answer({});
  check(free.reasoning_content, 'the model thinks when it may');
  check(!(await answer({ reasoning_budget_tokens: 0 })).reasoning_content, 'no reasoning');
  const short = (await answer({ reasoning_budget_tokens: 2 })).reasoning_content;
  check(short.length < free.reasoning_content.length && free.reasoning_content.startsWith(short), 'its beginning');
  // One more: where words are cut otherwise behind the client's own beginning.
  check((await post('/tokenize', { content: short })).json.tokens.length <= 3, `tokens of '${short}'`);
});

add(44, 'reasoning apart or in place is the same text', async ({ post }) => {
  const body = { messages: user('Write JSON for a person. Name Vera, age 36, likes river.'), max_tokens: 64, ...greedy };
  const apart = (await post('/v1/chat/completions', { ...body, reasoning_format: 'deepseek' })).json.choices[0].message;
  const whole = (await post('/v1/chat/completions', { ...body, reasoning_format: 'none' })).json.choices[0].message;
  checkEqual(whole.content, apart.reasoning_content
    ? `<think>\n${apart.reasoning_content}\n</think>\n\n${apart.content}` : apart.content, 'the text');
});

add(45, 'thinking is switched off by the kwarg or the effort, and the kwarg is no string', async ({ post }) => {
  const render = async (fields) => (await post('/apply-template', { messages: capital, ...fields })).json.prompt;
  const off = await render({ chat_template_kwargs: { enable_thinking: false } });
  check(off.endsWith('<think>\n\n</think>\n\n'), off);
  checkEqual(await render({ reasoning_effort: 'none' }), off, 'effort none');
  refused(await post('/apply-template', { messages: capital, chat_template_kwargs: { enable_thinking: 'false' } }),
          400, 'invalid_request_error', 'enable_thinking');
});

add(47, 'images are refused, naming the scheme', async ({ post }) => {
  const image = (url) => [{ role: 'user', content: [{ type: 'image_url', image_url: { url } }] }];
  refused(await post('/v1/chat/completions', { messages: image('http://a/b.png') }), 400, 'invalid_request_error', "'http'");
  refused(await post('/v1/chat/completions', { messages: image('data:image/jpeg;base64,iVBORw0KGgo=') }),
          400, 'invalid_request_error');
});

add(48, 'input_tokens is the number of prompt tokens', async ({ post }) => {
  const { usage } = (await post('/v1/chat/completions', chat)).json;
  checkEqual((await post('/v1/chat/completions/input_tokens', chat)).json.input_tokens, usage.prompt_tokens, 'tokens');
});

// ---- /v1/responses and /v1/messages

add(49, 'responses: ids, text, the order of a stream, refusals', async ({ post }) => {
  const body = { input: capital[0].content, ...greedy };
  const whole = (await post('/v1/responses', body)).json;
  const message = whole.output.find((item) => item.type === 'message');
  check(whole.id.startsWith('resp_') && message.id.startsWith('msg_'), 'ids');
  const text = message.content[0].text;
  check(text.length > 0, 'a text');
  const { done, list } = events((await post('/v1/responses', { ...body, stream: true })).text);
  check(!done, 'no [DONE]');
  checkEqual([list[0].type, list[1].type], ['response.created', 'response.in_progress'], 'the beginning');
  checkEqual(list[0].response.id, list[1].response.id, 'one id');
  checkEqual(list.filter((event) => event.type === 'response.output_text.delta').map((event) => event.delta).join(''), text,
             'the deltas');
  checkEqual(list.at(-1).type, 'response.completed', 'the end');
  refused(await post('/v1/responses', { ...body, previous_response_id: 'resp_1' }), 400, 'invalid_request_error');
  refused(await post('/v1/responses', {}), 400, 'invalid_request_error', 'input');
});

const anthropic = { messages: capital, max_tokens: 64, ...greedy };
const anthropicTools = [{ name: weather.name, description: weather.description, input_schema: weather.parameters }];

add(50, 'messages: type, usage, no timings, missing messages', async ({ post }) => {
  const answer = (await post('/v1/messages', anthropic)).json;
  const { input_tokens: fresh, cache_read_input_tokens: cached, output_tokens: output } = answer.usage;
  check([fresh, cached, output].every(Number.isInteger), 'three integers');
  checkEqual([answer.type, 'timings' in answer], ['message', false], 'the message');
  checkEqual((await post('/v1/messages/count_tokens', anthropic)).json.input_tokens, fresh + cached, 'the prompt');
  checkEqual((await post('/v1/messages', { max_tokens: 4 })).status, 400, 'no messages');
});

add(51, 'messages: a tool is used, and its result taken in every form', async ({ post }) => {
  const messages = user('What is the weather in Paris?');
  const asked = (await post('/v1/messages', { ...anthropic, messages, tools: anthropicTools })).json;
  const call = asked.content.find((block) => block.type === 'tool_use');
  checkEqual([asked.stop_reason, call.input], ['tool_use', { city: 'Paris' }], 'the call');
  for (const result of [{ content: 'sunny' }, { content: [{ type: 'text', text: 'sunny' }] }, { content: 'none', is_error: true }]) {
    const answer = await post('/v1/messages', {
      ...anthropic, tools: anthropicTools,
      messages: [...messages, { role: 'assistant', content: asked.content },
                 { role: 'user', content: [{ type: 'tool_result', tool_use_id: call.id, ...result }] }],
    });
    checkEqual(answer.status, 200, 'a result');
  }
});

add(52, 'count_tokens needs no limit, and thinking in the history counts', async ({ post }) => {
  const count = async (thinking) => {
    const { status, json } = await post('/v1/messages/count_tokens', {
      messages: [...user('A'), { role: 'assistant', content: [...thinking, { type: 'text', text: 'B' }] }, ...user('C')],
    });
    checkEqual([status, Object.keys(json)], [200, ['input_tokens']], 'the count');
    return json.input_tokens;
  };
  check(await count([{ type: 'thinking', thinking: 'I add two numbers.', signature: '' }]) > await count([]), 'it counts');
});

// ---- tokenizer

add(57, 'tokenizing and back, and control tokens as text', async ({ post }) => {
  const content = 'Grüße, 世界 🎉 <|im_end|>';
  const tokens = async (fields) => (await post('/tokenize', { content, ...fields })).json.tokens;
  checkEqual((await post('/detokenize', { tokens: await tokens({}) })).json.content, content, 'round trip');
  const pieces = (await post('/tokenize', { content: '🎉', with_pieces: true })).json.tokens;
  check(pieces.length > 1 && pieces.every((item) => Array.isArray(item.piece)), 'pieces of a split character are bytes');
  check((await tokens({ parse_special: false })).length > (await tokens({})).length, 'parse_special false');
});

await withServer(['-np', '2', '-c', '8192', '--metrics'], async (server) => {
  let failed = 0;
  for (const { number, title, run } of checks) {
    if (wanted.size > 0 && !wanted.has(number)) continue;
    try {
      await run(server);
      console.log(`ok ${number} ${title}`);
    } catch (error) {
      failed += 1;
      console.log(`FAILED ${number} ${title}: ${error.stack}`);
    }
  }
  checkEqual(failed, 0, 'failed checks');
});
