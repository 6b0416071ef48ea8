// The settings, and the list of shortcuts.
import { useRef, useState } from 'preact/hooks';

import { Dialog, useApp } from './parts.jsx';
import { DEFAULTS, SAMPLING, parseExtra, parseTools } from './settings.js';

const wrong = (parse, text) => {
  try {
    parse(text);
    return '';
  } catch (error) {
    return error.message;
  }
};

function JsonField({ label, hint, value, parse, onChange }) {
  const problem = wrong(parse, value);
  const id = `field-${label.toLowerCase().replace(/\W+/g, '-')}`;
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <textarea
        id={id} rows={3} spellcheck={false} class="mono" value={value} aria-invalid={problem !== ''} aria-describedby={`${id}-hint`}
        onInput={(e) => onChange(e.currentTarget.value)}
      />
      <p id={`${id}-hint`} class={problem ? 'failed' : 'quiet'}>{problem || hint}</p>
    </div>
  );
}

function KeyField({ app }) {
  const [key, setKey] = useState(app.state.key);
  const [told, setTold] = useState('');
  const { rememberKey } = app.state.settings;
  const use = async (event) => {
    event.preventDefault();
    setTold(await app.useKey(key.trim(), rememberKey) ? 'The server takes it.' : 'The server does not know this key.');
  };
  return (
    <form class="field" onSubmit={use}>
      <label for="field-key">API key</label>
      <div class="row">
        <input id="field-key" type="password" autocomplete="off" spellcheck={false} value={key} onInput={(e) => setKey(e.currentTarget.value)} />
        <button type="submit" class="button">Use</button>
      </div>
      <label class="choice">
        <input type="checkbox" checked={rememberKey} onChange={(e) => app.useKey(key.trim(), e.currentTarget.checked)} />
        <span>Keep it in this browser</span>
      </label>
      <p class="quiet" role="status">{told}</p>
    </form>
  );
}

function Sampling({ app }) {
  const { settings, server } = app.state;
  const params = server.props?.default_generation_settings?.params ?? {};
  const recommended = server.props?.engine?.chat?.recommended_sampling ?? {};
  const change = (name, value) => app.changeSettings({ sampling: { ...settings.sampling, [name]: value } });
  const hint = ({ name, hint: text }) => {
    const own = name === 'seed' ? undefined : params[name];
    return [own === undefined ? '' : `server: ${Math.round(own * 1e4) / 1e4}`, text ?? ''].filter(Boolean).join(' · ');
  };
  return (
    <fieldset>
      <legend>Sampling</legend>
      <p class="quiet">An empty field leaves it to the server.</p>
      <div class="grid">
        {SAMPLING.map((field) => (
          <label class="field" key={field.name}>
            <span>{field.label}</span>
            <input
              type="number" inputmode="decimal" min={field.min} max={field.max} step={field.step}
              value={settings.sampling[field.name] ?? ''} onInput={(e) => change(field.name, e.currentTarget.value)}
            />
            <small class="quiet">{hint(field)}</small>
          </label>
        ))}
      </div>
      <div class="row">
        {Object.keys(recommended).length > 0 && (
          <button
            type="button" class="button"
            onClick={() => app.changeSettings({
              sampling: { ...settings.sampling, ...Object.fromEntries(Object.entries(recommended).map(([k, v]) => [k, String(v)])) } })}
          >What the model's makers recommend</button>
        )}
        <button type="button" class="button" onClick={() => app.changeSettings({ sampling: {} })}>Empty all</button>
      </div>
    </fieldset>
  );
}

function Data({ app }) {
  const file = useRef(null);
  return (
    <fieldset>
      <legend>Conversations</legend>
      <p class="quiet">They are kept in this browser and nowhere else.</p>
      <div class="row">
        <button type="button" class="button" onClick={() => app.exportAll()}>Export all</button>
        <button type="button" class="button" onClick={() => file.current.click()}>Import…</button>
        <button
          type="button" class="button danger"
          onClick={() => app.set({ dialog: { confirm: 'Delete all conversations?', text: 'This cannot be undone. Export them first to keep a copy.', act: 'Delete all', run: () => app.removeAll() } })}
        >Delete all…</button>
      </div>
      <input
        ref={file} type="file" accept="application/json,.json" class="hidden" tabIndex={-1} aria-label="File to import"
        onChange={(e) => { const [chosen] = e.currentTarget.files; if (chosen) app.importFile(chosen); }}
      />
    </fieldset>
  );
}

export function Settings() {
  const app = useApp();
  const { settings, server } = app.state;
  const caps = server.props?.chat_template_caps;
  const change = (name) => (e) => app.changeSettings({ [name]: e.currentTarget.value });
  return (
    <Dialog title="Settings" onClose={() => app.set({ dialog: null })}>
      <fieldset>
        <legend>Behaviour</legend>
        <label class="field">
          <span>System prompt</span>
          <textarea rows={3} value={settings.system} onInput={change('system')} placeholder="none: the model's own" />
        </label>
        <div class="grid">
          <label class="field">
            <span>Thinking</span>
            <select value={settings.thinking} onChange={change('thinking')}>
              <option value="auto">the server's choice</option>
              <option value="on">on</option>
              <option value="off">off</option>
            </select>
            {caps && !caps.supports_enable_thinking && <small class="quiet">This model's template has no such switch.</small>}
          </label>
          {caps?.supports_reasoning_effort && (
            <label class="field">
              <span>Effort</span>
              <select value={settings.effort} onChange={change('effort')}>
                <option value="">the server's choice</option>
                {['low', 'medium', 'high'].map((e) => <option key={e} value={e}>{e}</option>)}
              </select>
            </label>
          )}
          <label class="field">
            <span>Tokens of an answer, at most</span>
            <input type="number" min={1} step={1} value={settings.maxTokens} onInput={change('maxTokens')} placeholder="the server's limit" />
          </label>
          <label class="field">
            <span>Colours</span>
            <select value={settings.theme} onChange={change('theme')}>
              <option value="system">as the system</option>
              <option value="light">light</option>
              <option value="dark">dark</option>
            </select>
          </label>
        </div>
      </fieldset>
      <Sampling app={app} />
      <fieldset>
        <legend>Server</legend>
        <KeyField app={app} />
      </fieldset>
      <fieldset>
        <legend>Tools and more</legend>
        <JsonField
          label="Tools" value={settings.tools} parse={parseTools} onChange={(tools) => app.changeSettings({ tools })}
          hint='A JSON array as the API takes it: [{"type": "function", "function": {"name": …}}]. You give the results.'
        />
        {settings.tools.trim() !== '' && (
          <label class="field">
            <span>Calls</span>
            <select value={settings.toolChoice} onChange={change('toolChoice')}>
              {['auto', 'required', 'none'].map((c) => <option key={c} value={c}>{c}</option>)}
            </select>
          </label>
        )}
        <JsonField
          label="More fields" value={settings.extra} parse={parseExtra} onChange={(extra) => app.changeSettings({ extra })}
          hint='A JSON object that goes into each request: {"stop": ["END"]}.'
        />
      </fieldset>
      <Data app={app} />
      <div class="row between">
        <button type="button" class="button" onClick={() => app.changeSettings({ ...DEFAULTS, theme: settings.theme, rememberKey: settings.rememberKey })}>Reset the settings</button>
        <a href="assets/notices.txt" target="_blank" rel="noopener">Licences</a>
      </div>
    </Dialog>
  );
}

const SHORTCUTS = [
  ['Enter', 'send'], ['Shift Enter', 'a new line'], ['Escape', 'stop the answer, close a dialog'], ['/', 'to the message box'],
  ['Alt N', 'new chat'], ['Alt M', 'machine view'], ['Alt S', 'settings'], ['?', 'this list'],
];

export function Shortcuts() {
  const app = useApp();
  return (
    <Dialog title="Shortcuts" class="narrow" onClose={() => app.set({ dialog: null })}>
      <dl class="shortcuts">
        {SHORTCUTS.map(([keys, what]) => (
          <div key={keys}><dt>{keys.split(' ').map((k) => <kbd key={k}>{k}</kbd>)}</dt><dd>{what}</dd></div>
        ))}
      </dl>
    </Dialog>
  );
}

export function Confirm({ ask }) {
  const app = useApp();
  const close = () => app.set({ dialog: null });
  return (
    <Dialog title={ask.confirm} class="narrow" onClose={close}>
      <p>{ask.text}</p>
      <div class="row">
        <button type="button" class="button danger" onClick={ask.run}>{ask.act}</button>
        <button type="button" class="button" onClick={close}>Cancel</button>
      </div>
    </Dialog>
  );
}
