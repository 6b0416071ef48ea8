// A tool server for an agent (MCP over stdio): one tool, get_weather, that says "sunny" of every city. No dependency.
import { createInterface } from 'node:readline';

const tool = {
  name: 'get_weather', description: 'Weather of a city',
  inputSchema: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
};

function answer(method, params) {
  if (method === 'initialize') {
    return { protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'weather', version: '1' } };
  }
  if (method === 'tools/list') return { tools: [tool] };
  if (method === 'tools/call') return { content: [{ type: 'text', text: 'sunny' }] };
  return {};
}

createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;  // a notification
  process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', id, result: answer(method, params) })}\n`);
});
