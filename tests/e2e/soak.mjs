// soak.mjs URL [REQUESTS] [CONNECTIONS] [SEED]: many requests over several connections against a
// running server, a third of them cancelled at random moments, streaming and not. Every finished text
// must equal the same request run alone, no slot may stay busy, and the server must stay healthy.
// Prints one line at the end; exits 1 on a failure. Plain Node, no dependency.
import http from 'node:http';

const base = new URL(process.argv[2]);
const total = Number(process.argv[3] ?? 200);
const connections = Number(process.argv[4] ?? 8);
let state = BigInt(process.argv[5] ?? 1);

// A small seeded generator, so that a run can be repeated.
function random() {
  state = (state * 6364136223846793005n + 1442695040888963407n) & 0xffffffffffffffffn;
  return Number(state >> 33n) / 2 ** 31;
}
const pick = (list) => list[Math.floor(random() * list.length)];

const countries = ['Japan', 'France', 'Italy', 'Iceland', 'Peru', 'Kenya', 'Norway', 'Chile'];

// A request that is the same each time: greedy, or sampled with a seed of its own.
function makeRequest(i) {
  const country = pick(countries);
  const sampled = random() < 0.5 ? { temperature: 0 } : { temperature: 0.9, seed: i };
  const n = 8 + Math.floor(random() * 56);
  if (random() < 0.5) {
    return {
      path: '/v1/chat/completions',
      body: {
        messages: [{ role: 'user', content: `What is the capital of ${country}?` }],
        max_tokens: n, ignore_eos: random() < 0.5, ...sampled,
      },
      textOf: (answer) => answer.choices[0].message.content,
      pieceOf: (event) => event.choices?.[0]?.delta?.content ?? '',
    };
  }
  return {
    path: '/completion',
    body: { prompt: `The capital of ${country}`, n_predict: n, ignore_eos: true, ...sampled },
    textOf: (answer) => answer.content,
    pieceOf: (event) => event.content ?? '',
  };
}

function send(agent, { path, body, textOf, pieceOf }, stream, cancelAfterMs) {
  return new Promise((resolve, reject) => {
    const text = JSON.stringify({ ...body, stream });
    const request = http.request(new URL(path, base), {
      agent, method: 'POST',
      headers: { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(text) },
    });
    let timer = null;
    let cancelled = false;
    if (cancelAfterMs !== null) {
      timer = setTimeout(() => { cancelled = true; request.destroy(); }, cancelAfterMs);
    }
    const finish = (result) => { clearTimeout(timer); resolve(result); };
    request.on('error', (error) => (cancelled ? finish(null) : reject(error)));
    request.on('response', (response) => {
      let received = '';
      response.setEncoding('utf8');
      response.on('data', (piece) => { received += piece; });
      response.on('error', (error) => (cancelled ? finish(null) : reject(error)));
      response.on('close', () => {
        if (cancelled) return finish(null);
        try {
          if (response.statusCode !== 200) throw new Error(`${response.statusCode} ${received}`);
          if (!response.complete) throw new Error('the answer was cut off');
          if (!stream) return finish(textOf(JSON.parse(received)));
          let joined = '';
          for (const event of received.split('\n\n')) {
            if (!event.startsWith('data: ') || event === 'data: [DONE]') continue;
            const json = JSON.parse(event.slice(6));
            if (json.error) throw new Error(event);
            joined += pieceOf(json);
          }
          return finish(joined);
        } catch (error) {
          return reject(error);
        }
      });
    });
    request.end(text);
  });
}

async function getJson(path) {
  const response = await fetch(new URL(path, base));
  if (response.status !== 200) throw new Error(`${path}: ${response.status}`);
  return response.json();
}

const requests = Array.from({ length: total }, (_, i) => ({
  request: makeRequest(i),
  stream: random() < 0.5,
  cancelAfterMs: random() < 1 / 3 ? Math.floor(random() * 60) : null,
}));

let next = 0;
let cancelled = 0;
const finished = [];
await Promise.all(Array.from({ length: connections }, async () => {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  while (next < requests.length) {
    const { request, stream, cancelAfterMs } = requests[next++];
    const text = await send(agent, request, stream, cancelAfterMs);
    if (text === null) cancelled += 1;
    else finished.push({ request, text });
  }
  agent.destroy();
}));

// Slots of cancelled requests are free within two seconds.
const deadline = Date.now() + 2000;
let busy = true;
while (busy && Date.now() < deadline) {
  busy = (await getJson('/slots')).some((slot) => slot.is_processing);
  if (busy) await new Promise((resolve) => setTimeout(resolve, 20));
}
if (busy) throw new Error('a slot is still busy two seconds after the last request');

const alone = new http.Agent({ keepAlive: true, maxSockets: 1 });
for (const { request, text } of finished) {
  const again = await send(alone, request, false, null);
  if (again !== text) {
    throw new Error(`${JSON.stringify(request.body)} gave ${JSON.stringify(text)} among others and ` +
                    `${JSON.stringify(again)} alone`);
  }
}
alone.destroy();
if ((await getJson('/health')).status !== 'ok') throw new Error('the server is not healthy');
console.log(`soak: ${total} requests over ${connections} connections, ${cancelled} cancelled, ` +
            `${finished.length} finished and equal to the same request alone`);
