// What the user chose. Empty fields say nothing to the server, which then takes its own defaults.

const NAME = 'bloomery.settings';
const KEY_NAME = 'bloomery.key';

// Fields of sampling: name in the request, label, and what a number must satisfy.
export const SAMPLING = [
  { name: 'temperature', label: 'Temperature', min: 0, step: 'any', hint: '0 is greedy' },
  { name: 'top_k', label: 'Top k', min: 0, step: 1, hint: '0 keeps all' },
  { name: 'top_p', label: 'Top p', min: 0, max: 1, step: 'any' },
  { name: 'min_p', label: 'Min p', min: 0, max: 1, step: 'any' },
  { name: 'repeat_penalty', label: 'Repeat penalty', min: 0.01, step: 'any', hint: '1 is off' },
  { name: 'presence_penalty', label: 'Presence penalty', step: 'any' },
  { name: 'frequency_penalty', label: 'Frequency penalty', step: 'any' },
  { name: 'seed', label: 'Seed', min: -1, step: 1, hint: 'empty or -1: another each time' },
];

export const DEFAULTS = {
  theme: 'system',
  system: '',
  thinking: 'auto',
  effort: '',
  maxTokens: '',
  sampling: {},
  tools: '',
  toolChoice: 'auto',
  extra: '',
  rememberKey: false,
};

// Of what was stored, by this version or another one, that which has the kind it should have.
export function checked(stored) {
  const fits = ([name, value]) => value !== null && typeof value === typeof DEFAULTS[name];
  return { ...DEFAULTS, ...Object.fromEntries(Object.entries(stored ?? {}).filter(fits)) };
}

export function loadSettings() {
  try {
    return checked(JSON.parse(localStorage.getItem(NAME) ?? '{}'));
  } catch {
    return { ...DEFAULTS };
  }
}

// Whether the browser has settings of its own: then the server's say nothing.
export function hasSettings() {
  try {
    return localStorage.getItem(NAME) !== null;
  } catch {
    return false;
  }
}

// False where the browser keeps nothing.
export function saveSettings(settings) {
  try {
    localStorage.setItem(NAME, JSON.stringify(settings));
    return true;
  } catch {
    return false;
  }
}

export function applyTheme(theme) {
  if (theme === 'dark' || theme === 'light') document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

export function loadKey() {
  try {
    return sessionStorage.getItem(KEY_NAME) ?? localStorage.getItem(KEY_NAME) ?? '';
  } catch {
    return '';
  }
}

// For this tab, and beyond it only where that was asked for.
export function saveKey(key, remember) {
  try {
    localStorage.removeItem(KEY_NAME);
    sessionStorage.removeItem(KEY_NAME);
    if (key) (remember ? localStorage : sessionStorage).setItem(KEY_NAME, key);
  } catch {
    // It lasts as long as the page then.
  }
}

function parsed(text, what, isRight) {
  if (!text.trim()) return null;
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new Error(`${what}: not JSON: ${error.message}`);
  }
  if (!isRight(value)) throw new Error(`${what}: not what is asked for`);
  return value;
}

export const parseTools = (text) => parsed(text, 'Tools', Array.isArray);
export const parseExtra = (text) =>
  parsed(text, 'More fields', (v) => typeof v === 'object' && v !== null && !Array.isArray(v));

// The fields of a chat request beside its messages. Throws with the setting that is wrong.
export function requestFields(settings) {
  const fields = {};
  for (const { name } of SAMPLING) {
    const text = settings.sampling[name] ?? '';
    if (String(text).trim() !== '') fields[name] = Number(text);
  }
  if (String(settings.maxTokens).trim() !== '') fields.max_tokens = Number(settings.maxTokens);
  if (settings.thinking !== 'auto') {
    fields.chat_template_kwargs = { enable_thinking: settings.thinking === 'on' };
  }
  if (settings.effort) fields.reasoning_effort = settings.effort;
  const tools = parseTools(settings.tools);
  if (tools?.length) {
    fields.tools = tools;
    fields.tool_choice = settings.toolChoice;
  }
  return { ...fields, ...parseExtra(settings.extra) };
}
