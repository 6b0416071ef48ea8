// The server's API as the page uses it: relative to the page's own address, never another host.
import { SseReader } from './sse.js';

export class ApiError extends Error {
  constructor(status, type, message) {
    super(message);
    this.status = status;
    this.type = type;
  }
}

function headersOf(key, more = {}) {
  return key ? { ...more, Authorization: `Bearer ${key}` } : more;
}

async function request(path, options) {
  let response;
  try {
    response = await fetch(path, { cache: 'no-store', credentials: 'omit', ...options });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError(0, 'offline', 'The server cannot be reached.');
  }
  if (response.ok) return response;
  let given = {};
  try {
    given = (await response.json()).error ?? {};
  } catch {
    // Not ours: a proxy's page, say. The status has to do.
  }
  throw new ApiError(response.status, given.type ?? '', given.message ?? `The server answered ${response.status}.`);
}

export async function getJson(path, key, signal) {
  return (await request(path, { headers: headersOf(key), signal })).json();
}

export async function getText(path, key, signal) {
  return (await request(path, { headers: headersOf(key), signal })).text();
}

// Runs a chat completion; `onEvent` gets each chunk. Returns when the answer is complete.
export async function streamChat(body, key, signal, onEvent) {
  const response = await request('v1/chat/completions', {
    method: 'POST',
    headers: headersOf(key, { 'Content-Type': 'application/json' }),
    body: JSON.stringify(body),
    signal,
  });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const events = new SseReader();
  for (;;) {
    let piece;
    try {
      piece = await reader.read();
    } catch (error) {
      if (error.name === 'AbortError') throw error;
      throw new ApiError(0, 'offline', 'The connection broke before the answer was complete.');
    }
    if (piece.done) throw new ApiError(0, 'offline', 'The connection ended before the answer was complete.');
    for (const data of events.feed(piece.value)) {
      if (data === '[DONE]') return;
      const event = JSON.parse(data);
      if (event.error) throw new ApiError(event.error.code ?? 500, event.error.type ?? '', event.error.message ?? 'The server failed.');
      onEvent(event);
    }
  }
}

// Prometheus text: the values without labels by name, and all lines in order.
export function parseMetrics(text) {
  const values = new Map();
  const all = [];
  for (const line of text.split('\n')) {
    const found = /^([A-Za-z_:][\w:]*)(\{[^}]*\})?\s+(\S+)/.exec(line);
    if (!found) continue;
    const value = Number(found[3]);
    if (!found[2]) values.set(found[1], value);
    all.push({ name: found[1] + (found[2] ?? ''), value });
  }
  return { values, all };
}
