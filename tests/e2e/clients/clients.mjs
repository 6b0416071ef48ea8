// clients.mjs SERVER_PROGRAM: real clients from npm chat with and stream from a server of the demo
// model, and get the same text each way.
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import Anthropic from '@anthropic-ai/sdk';
import { generateText, streamText } from 'ai';
import OpenAI from 'openai';

import { check, checkEqual, startServer } from './server.mjs';

const question = [{ role: 'user', content: 'What is the capital of Japan?' }];
const key = 'secret-of-the-test';

async function openAiClient(url) {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
  const models = await client.models.list();
  checkEqual(models.data.map((m) => m.id), ['seed'], 'openai: models');

  const answer = await client.chat.completions.create(
    { model: 'seed', messages: question, temperature: 0 });
  const text = answer.choices[0].message.content;
  check(text.includes('Tokyo'), `openai: an answer with Tokyo, not ${text}`);
  checkEqual(answer.choices[0].finish_reason, 'stop', 'openai: finish reason');
  check(answer.usage.total_tokens > 0, 'openai: usage');

  const stream = await client.chat.completions.create({
    model: 'seed', messages: question, temperature: 0, stream: true,
    stream_options: { include_usage: true },
  });
  let streamed = '';
  let usage = null;
  for await (const chunk of stream) {
    streamed += chunk.choices[0]?.delta?.content ?? '';
    usage = chunk.usage ?? usage;
  }
  checkEqual(streamed, text, 'openai: streamed text');
  checkEqual(usage.completion_tokens, answer.usage.completion_tokens, 'openai: streamed usage');

  const logprobs = await client.chat.completions.create({
    model: 'seed', messages: question, temperature: 0, logprobs: true, top_logprobs: 3, max_tokens: 2,
  });
  checkEqual(logprobs.choices[0].logprobs.content.length, 2, 'openai: logprobs');
  checkEqual(logprobs.choices[0].logprobs.content[0].top_logprobs.length, 3, 'openai: alternatives');

  const completion = await client.completions.create(
    { model: 'seed', prompt: 'The capital of', temperature: 0, max_tokens: 4 });
  checkEqual(completion.choices[0].finish_reason, 'length', 'openai: completion');

  const aborted = await client.chat.completions.create(
    { model: 'seed', messages: question, stream: true, ignore_eos: true });
  for await (const chunk of aborted) {
    check(chunk.id, 'openai: a chunk before leaving');
    break;  // leaves the stream
  }

  let refused = null;
  try {
    await client.chat.completions.create({ model: 'seed', messages: 'no list' });
  } catch (error) {
    refused = error;
  }
  checkEqual(refused?.status, 400, 'openai: bad messages are an API error');
  check(refused.message.includes('messages'), 'openai: the refusal names the field');

  const stranger = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'wrong', maxRetries: 0 });
  let status = 0;
  await stranger.models.list().catch((error) => { status = error.status; });
  checkEqual(status, 401, 'openai: a wrong key');
}

async function aiSdk(url) {
  const provider = createOpenAICompatible(
    { name: 'bloomery', baseURL: `${url}/v1`, apiKey: key, includeUsage: true });
  const model = provider('seed');
  const answer = await generateText({ model, messages: question, temperature: 0, maxRetries: 0 });
  check(answer.text.includes('Tokyo'), `ai: an answer with Tokyo, not ${answer.text}`);
  checkEqual(answer.finishReason, 'stop', 'ai: finish reason');
  const streamed = streamText({ model, messages: question, temperature: 0, maxRetries: 0 });
  let text = '';
  for await (const piece of streamed.textStream) text += piece;
  checkEqual(text, answer.text, 'ai: streamed text');
  const usage = await streamed.usage;
  check(usage.outputTokens > 0, 'ai: streamed usage');
}

const weatherQuestion = 'What is the weather in Paris?';
const weatherSchema = {
  type: 'object', properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: false,
};

async function openAiTools(url) {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
  const tools = [{
    type: 'function',
    function: { name: 'get_weather', description: 'Weather of a city', parameters: weatherSchema },
  }];
  const messages = [{ role: 'user', content: weatherQuestion }];
  const body = { model: 'seed', messages, tools, temperature: 0 };
  const answer = await client.chat.completions.create(body);
  checkEqual(answer.choices[0].finish_reason, 'tool_calls', 'openai: finish reason of a call');
  const call = answer.choices[0].message.tool_calls[0];
  checkEqual([call.function.name, JSON.parse(call.function.arguments)], ['get_weather', { city: 'Paris' }],
             'openai: a call');
  const streamed = await client.chat.completions.stream(body).finalChatCompletion();
  checkEqual(streamed.choices[0].message.tool_calls[0].function.arguments, call.function.arguments,
             'openai: streamed arguments');
  const next = await client.chat.completions.create({
    ...body,
    messages: [...messages, answer.choices[0].message,
               { role: 'tool', tool_call_id: call.id, content: 'sunny' }],
  });
  checkEqual(next.choices[0].finish_reason, 'stop', 'openai: the answer to a result');
}

async function openAiResponses(url) {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
  const body = { model: 'seed', input: question[0].content, temperature: 0 };
  const answer = await client.responses.create(body);
  check(answer.output_text.includes('Tokyo'), `responses: an answer with Tokyo, not ${answer.output_text}`);
  checkEqual(answer.status, 'completed', 'responses: status');
  const streamed = await client.responses.stream(body).finalResponse();
  checkEqual(streamed.output_text, answer.output_text, 'responses: streamed text');
  checkEqual(streamed.usage.output_tokens, answer.usage.output_tokens, 'responses: streamed usage');

  const tools = [{ type: 'function', name: 'get_weather', parameters: weatherSchema, strict: true }];
  const input = [{ role: 'user', content: weatherQuestion }];
  const asked = await client.responses.create({ ...body, input, tools });
  const call = asked.output.find((item) => item.type === 'function_call');
  checkEqual([call.name, JSON.parse(call.arguments)], ['get_weather', { city: 'Paris' }], 'responses: a call');
  let pieces = '';
  for await (const event of client.responses.stream({ ...body, input, tools })) {
    if (event.type === 'response.function_call_arguments.delta') pieces += event.delta;
  }
  checkEqual(pieces, call.arguments, 'responses: streamed arguments');
  const next = await client.responses.create({
    ...body, tools,
    input: [...input, ...asked.output,
            { type: 'function_call_output', call_id: call.call_id, output: 'sunny' }],
  });
  check(next.output_text.length > 0, 'responses: the answer to a result');

  const cut = await client.responses.stream({ ...body, max_output_tokens: 2 }).finalResponse();
  checkEqual([cut.status, cut.incomplete_details.reason], ['incomplete', 'max_output_tokens'],
             'responses: a cut answer');
  let refused = null;
  await client.responses.create({ ...body, previous_response_id: 'resp_1' })
    .catch((error) => { refused = error; });
  checkEqual(refused?.status, 400, 'responses: earlier ones are not kept');
}

async function anthropic(url) {
  const client = new Anthropic({ baseURL: url, apiKey: key, maxRetries: 0 });
  const body = { model: 'seed', max_tokens: 64, messages: question, temperature: 0 };
  const answer = await client.messages.create(body);
  check(answer.content[0].text.includes('Tokyo'), `anthropic: Tokyo, not ${answer.content[0].text}`);
  checkEqual(answer.stop_reason, 'end_turn', 'anthropic: stop reason');
  const streamed = await client.messages.stream(body).finalMessage();
  checkEqual(streamed.content[0].text, answer.content[0].text, 'anthropic: streamed text');
  checkEqual(streamed.usage.output_tokens, answer.usage.output_tokens, 'anthropic: streamed usage');
  const count = await client.messages.countTokens({ model: 'seed', messages: question });
  checkEqual(count.input_tokens, answer.usage.input_tokens + answer.usage.cache_read_input_tokens,
             'anthropic: counted tokens');
  const stopped = await client.messages.create({ ...body, stop_sequences: ['Tokyo'] });
  checkEqual([stopped.stop_reason, stopped.stop_sequence], ['stop_sequence', 'Tokyo'],
             'anthropic: a stop sequence');

  const tools = [{ name: 'get_weather', description: 'Weather of a city', input_schema: weatherSchema }];
  const messages = [{ role: 'user', content: weatherQuestion }];
  const asked = await client.messages.create({ ...body, messages, tools });
  checkEqual(asked.stop_reason, 'tool_use', 'anthropic: stop reason of a call');
  const call = asked.content.find((block) => block.type === 'tool_use');
  checkEqual([call.name, call.input], ['get_weather', { city: 'Paris' }], 'anthropic: a call');
  const askedAgain = await client.messages.stream({ ...body, messages, tools }).finalMessage();
  checkEqual(askedAgain.content.find((block) => block.type === 'tool_use').input, call.input,
             'anthropic: streamed input');
  const next = await client.messages.create({
    ...body, tools,
    messages: [...messages, { role: 'assistant', content: asked.content },
               { role: 'user', content: [{ type: 'tool_result', tool_use_id: call.id,
                                           content: [{ type: 'text', text: 'sunny' }] }] }],
  });
  checkEqual(next.stop_reason, 'end_turn', 'anthropic: the answer to a result');

  let refused = null;
  await client.messages.create({ ...body, messages: [] , system: 7 }).catch((error) => { refused = error; });
  check(refused instanceof Anthropic.BadRequestError, `anthropic: a refusal, not ${refused}`);
  checkEqual(refused.error.error.type, 'invalid_request_error', 'anthropic: its type');
  const stranger = new Anthropic({ baseURL: url, apiKey: 'wrong', maxRetries: 0 });
  await stranger.messages.create(body).catch((error) => { refused = error; });
  check(refused instanceof Anthropic.AuthenticationError, `anthropic: a wrong key, not ${refused}`);
}

const server = await startServer(process.argv[2], ['--api-key', key, '-a', 'seed', '-np', '2']);
try {
  await openAiClient(server.url);
  await openAiTools(server.url);
  await openAiResponses(server.url);
  await anthropic(server.url);
  await aiSdk(server.url);
} catch (error) {
  console.error(server.child.err);
  throw error;
} finally {
  checkEqual(await server.stop(), 0, 'exit code of the server');
}
console.log('ok');
