// clients.mjs SERVER_PROGRAM: real clients from npm chat with and stream from a server of the demo
// model, and get the same text each way.
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
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

const server = await startServer(process.argv[2], ['--api-key', key, '-a', 'seed', '-np', '2']);
try {
  await openAiClient(server.url);
  await aiSdk(server.url);
} catch (error) {
  console.error(server.child.err);
  throw error;
} finally {
  checkEqual(await server.stop(), 0, 'exit code of the server');
}
console.log('ok');
