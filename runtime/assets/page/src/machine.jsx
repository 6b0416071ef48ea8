// The machine view: what the server says of its memory, its experts, its slots and its speed. Every
// number is one the server gave, or a difference of two of them; what it does not tell is named.
import { useEffect, useRef, useState } from 'preact/hooks';

import { getJson, getText, parseMetrics } from './api.js';
import { HeatMap } from './heat_map.jsx';
import { Bytes, Num, useApp } from './parts.jsx';

const LOOK_MS = 1000;
const SLOW_LOOK_MS = 3000;  // of what is large, or moves slowly
const HISTORY = 60;         // looks back that the curve shows

// Asks `read` again and again while the page is seen: {value, error, at}.
// `offered` false: it is not asked. What answers that it is not offered is not asked again.
function useLooks(read, ms, key, offered = true) {
  const [look, setLook] = useState({ value: null, error: null, at: 0 });
  useEffect(() => {
    if (!offered) return undefined;
    const stop = new AbortController();
    let timer = null;
    const again = async () => {
      if (document.visibilityState === 'visible') {
        try {
          const value = await read(key, stop.signal);
          setLook({ value, error: null, at: performance.now() });
        } catch (error) {
          if (stop.signal.aborted) return;
          setLook((before) => ({ ...before, error, at: performance.now() }));
          if (error.status === 404 || error.status === 501) return;
        }
      }
      if (!stop.signal.aborted) timer = setTimeout(again, ms);
    };
    again();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [key, offered]);
  return { ...look, offered };
}

// What a route did not give, in words.
function NotTold({ route, look, what }) {
  if (!look.offered) return <p class="quiet not-told">Not told: {what}. This server offers no {route}.</p>;
  if (!look.error) return <p class="quiet">Asking {route}…</p>;
  return <p class="quiet not-told">Not told: {what}. {route} answers {look.error.status || 'nothing'}: {look.error.message}</p>;
}

const Card = ({ title, children, class: more = '' }) => (
  <section class={`card ${more}`} aria-label={title}><h2>{title}</h2>{children}</section>
);

// Tokens a second between two looks at counters that only grow.
function useRate(value, at) {
  const state = useRef({ value: null, at: 0, history: [] });
  const now = state.current;
  if (value !== null && at !== now.at) {
    if (now.value !== null && value >= now.value && at > now.at) {
      now.history = [...now.history.slice(1 - HISTORY), (value - now.value) / ((at - now.at) / 1000)];
    }
    now.value = value;
    now.at = at;
  }
  return now.history;
}

function Curve({ history, label }) {
  const top = Math.max(...history, 1);
  const x = (i) => (100 * (i + HISTORY - history.length)) / (HISTORY - 1);
  const y = (v) => 31 - (29 * v) / top;
  const line = history.map((v, i) => `${x(i).toFixed(2)},${y(v).toFixed(2)}`).join(' ');
  return (
    <svg class="curve" viewBox="0 0 100 32" preserveAspectRatio="none" role="img" aria-label={label}>
      {history.length > 1 && <polyline points={line} />}
    </svg>
  );
}

function Speed({ metrics, slots }) {
  const predicted = metrics.value?.values.get('llamacpp:tokens_predicted_total') ?? null;
  const read = metrics.value?.values.get('llamacpp:prompt_tokens_total') ?? null;
  const predictedRate = useRate(predicted, metrics.at);
  const readRate = useRate(read, metrics.at);
  if (predicted === null) {
    const decoded = slots.value?.reduce((sum, slot) => sum + (slot.next_token?.[0]?.n_decoded ?? 0), 0);
    return (
      <Card title="Tokens a second">
        <NotTold route="/metrics" look={metrics} what="tokens a second" />
        {decoded !== undefined && <p>Tokens of the answers that run now, from /slots: <Num value={decoded} /></p>}
      </Card>
    );
  }
  return (
    <Card title="Tokens a second">
      <dl class="figures">
        <div><dt>written</dt><dd class="large">{predictedRate.length ? <Num value={predictedRate.at(-1)} digits={1} /> : '–'}</dd></div>
        <div><dt>read</dt><dd class="large">{readRate.length ? <Num value={readRate.at(-1)} digits={1} /> : '–'}</dd></div>
        <div><dt>written since the start</dt><dd><Num value={predicted} field="metrics.tokens_predicted_total" /></dd></div>
        <div><dt>read since the start</dt><dd><Num value={read ?? 0} field="metrics.prompt_tokens_total" /></dd></div>
      </dl>
      <Curve history={predictedRate} label={`Tokens written a second over the last ${HISTORY} looks`} />
      <p class="quiet">Over the time between two looks at /metrics, about a second.</p>
    </Card>
  );
}

function CacheHits({ metrics, slots }) {
  const cached = metrics.value?.values.get('llamacpp:prompt_tokens_cached_total');
  const read = metrics.value?.values.get('llamacpp:prompt_tokens_total');
  if (cached === undefined || read === undefined) {
    const tasks = slots.value?.filter((slot) => slot.n_prompt_tokens > 0) ?? [];
    const sum = (name) => tasks.reduce((total, slot) => total + slot[name], 0);
    return (
      <Card title="Prompt cache">
        <NotTold route="/metrics" look={metrics} what="cache hits over all requests" />
        {tasks.length > 0 && (
          <p>Of the last prompt of each slot, from /slots: <Num value={sum('n_prompt_tokens_cache')} /> of <Num value={sum('n_prompt_tokens')} /> tokens taken over.</p>
        )}
      </Card>
    );
  }
  const all = cached + read;
  return (
    <Card title="Prompt cache">
      <dl class="figures">
        <div><dt>prompt tokens taken over</dt><dd class="large">{all > 0 ? <Num value={(100 * cached) / all} digits={1} unit="%" /> : '–'}</dd></div>
        <div><dt>taken over</dt><dd><Num value={cached} field="metrics.prompt_tokens_cached_total" /></dd></div>
        <div><dt>computed</dt><dd><Num value={read} /></dd></div>
      </dl>
    </Card>
  );
}

function Queue({ metrics, slots, props }) {
  const busy = slots.value?.filter((slot) => slot.is_processing).length;
  const waiting = metrics.value?.values.get('llamacpp:requests_deferred');
  return (
    <Card title="Queue">
      <dl class="figures">
        <div><dt>slots busy</dt><dd class="large">{busy === undefined ? '–' : <><Num value={busy} field="slots.busy" /> of <Num value={props.total_slots} field="props.total_slots" /></>}</dd></div>
        <div><dt>requests waiting</dt><dd class="large">{waiting === undefined ? '–' : <Num value={waiting} field="metrics.requests_deferred" />}</dd></div>
      </dl>
      {slots.error && <NotTold route="/slots" look={slots} what="what the slots do" />}
      {waiting === undefined && <NotTold route="/metrics" look={metrics} what="how many requests wait" />}
    </Card>
  );
}

function SlotRow({ slot }) {
  const next = slot.next_token?.[0];
  const held = (slot.n_prompt_tokens ?? 0) + (next?.n_decoded ?? 0);
  return (
    <tr>
      <th scope="row">{slot.id}</th>
      <td><span class={`pill ${slot.is_processing ? 'busy' : ''}`}>{slot.is_processing ? 'busy' : 'idle'}</span></td>
      <td>{slot.id_task === undefined ? '–' : <Num value={slot.id_task} />}</td>
      <td>{slot.n_prompt_tokens === undefined ? '–' : <Num value={slot.n_prompt_tokens} field={`slots.${slot.id}.n_prompt_tokens`} />}</td>
      <td>{slot.n_prompt_tokens_cache === undefined ? '–' : <Num value={slot.n_prompt_tokens_cache} field={`slots.${slot.id}.n_prompt_tokens_cache`} />}</td>
      <td>{next === undefined ? '–' : <Num value={next.n_decoded} />}</td>
      <td><meter min={0} max={slot.n_ctx} value={held} aria-label={`Context of slot ${slot.id}`} /> <Num value={slot.n_ctx} field={`slots.${slot.id}.n_ctx`} /></td>
    </tr>
  );
}

const Slots = ({ slots }) => (
  <Card title="Slots" class="wide">
    {slots.value === null
      ? <NotTold route="/slots" look={slots} what="what the slots do" />
      : (
        <div class="table">
          <table>
            <thead><tr><th>slot</th><th>state</th><th>task</th><th>prompt</th><th>of it taken over</th><th>written</th><th>context</th></tr></thead>
            <tbody>{slots.value.map((slot) => <SlotRow key={slot.id} slot={slot} />)}</tbody>
          </table>
        </div>
      )}
  </Card>
);

// Each class a shade of its own, the same in bar and list.
function Tier({ tier, number }) {
  const planned = tier.classes.filter((c) => !c.mapped);
  const field = `residency.${number}`;
  return (
    <div class="tier">
      <h3>{tier.name} <span class="quiet">{tier.device}</span></h3>
      <p>
        <Bytes value={tier.used_bytes} field={`${field}.used_bytes`} /> planned
        {tier.limit_bytes !== null && (
          <> of <Bytes value={tier.limit_bytes} field={`${field}.limit_bytes`} /> <meter min={0} max={tier.limit_bytes} value={tier.used_bytes} aria-label={`Planned memory of ${tier.name}`} /></>
        )}
      </p>
      <svg class="bar" viewBox="0 0 1000 10" preserveAspectRatio="none" role="img" aria-label={`Planned memory of ${tier.name} by class`}>
        {planned.map((c, i) => {
          const before = planned.slice(0, i).reduce((sum, p) => sum + p.bytes, 0);
          return <rect key={c.name} class={`shade-${i % 8}`} x={(1000 * before) / tier.used_bytes} y={0} width={(1000 * c.bytes) / tier.used_bytes} height={10} />;
        })}
      </svg>
      <ul class="classes">
        {tier.classes.map((c) => (
          <li key={c.name}>
            <i class={c.mapped ? 'swatch mapped' : `swatch shade-${planned.indexOf(c) % 8}`} />
            <span>{c.name}{c.mapped && <small class="quiet"> mapped from the file, beside the plan</small>}</span>
            <Bytes value={c.bytes} field={`${field}.${c.name}`} />
          </li>
        ))}
      </ul>
    </div>
  );
}

const Memory = ({ residency }) => (
  <Card title="Memory" class="wide">
    {residency.value === null
      ? <NotTold route="/residency" look={residency} what="memory by tier and class" />
      : residency.value.tiers.map((tier, i) => <Tier key={tier.name} tier={tier} number={i} />)}
  </Card>
);

function Experts({ residency }) {
  const value = residency.value;
  if (value === null) return <Card title="Experts" class="wide"><NotTold route="/residency" look={residency} what="what the experts do" /></Card>;
  if (value.banks.length === 0) return <Card title="Experts" class="wide"><p class="quiet">This model has no banks of experts.</p></Card>;
  return (
    <Card title="Experts" class="wide">
      <p>
        <Num value={value.banks.length} field="residency.banks" /> banks of up to <Num value={Math.max(...value.banks.map((b) => b.experts))} /> experts;
        each row picks <Num value={value.banks[0].used} field="residency.used" />.
      </p>
      {value.rows_counted
        ? <HeatMap banks={value.banks} />
        : <p class="quiet not-told">Not told: which experts rows picked. A card does not report it to the host.</p>}
    </Card>
  );
}

function Model({ props }) {
  const { engine } = props;
  const rows = [
    ['model', props.model_alias], ['plugin', engine?.plugin], ['quantisation', props.model_ftype], ['kernels', engine?.kernels?.isa],
    ['layers', engine?.model?.n_layers], ['experts', engine?.model?.n_experts && `${engine.model.n_experts}, ${engine.model.n_experts_used} a token`],
    ['server', props.build_info],
  ].filter(([, value]) => value);
  return (
    <Card title="Model" class="wide">
      <dl class="facts-list">
        {rows.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}
        {engine?.model?.bytes > 0 && <div><dt>weights</dt><dd><Bytes value={engine.model.bytes} field="props.engine.model.bytes" /></dd></div>}
        <div><dt>context of a slot</dt><dd><Num value={props.default_generation_settings.n_ctx} field="props.n_ctx" /></dd></div>
      </dl>
    </Card>
  );
}

const AllMetrics = ({ metrics }) => metrics.value && (
  <details class="card wide">
    <summary>All of /metrics</summary>
    <div class="table">
      <table>
        <tbody>{metrics.value.all.map((m) => <tr key={m.name}><th scope="row"><code>{m.name}</code></th><td><Num value={m.value} digits={6} /></td></tr>)}</tbody>
      </table>
    </div>
  </details>
);

const readSlots = (key, signal) => getJson('slots', key, signal);
const readMetrics = async (key, signal) => parseMetrics(await getText('metrics', key, signal));
const readResidency = (key, signal) => getJson('residency', key, signal);
const readProps = (key, signal) => getJson('props', key, signal);

export function Machine() {
  const app = useApp();
  const { key } = app.state;
  const props = useLooks(readProps, SLOW_LOOK_MS, key);
  const offers = props.value ?? {};
  const slots = useLooks(readSlots, LOOK_MS, key, offers.endpoint_slots ?? false);
  const metrics = useLooks(readMetrics, LOOK_MS, key, offers.endpoint_metrics ?? false);
  const residency = useLooks(readResidency, SLOW_LOOK_MS, key, props.value !== null);
  return (
    <section class="machine" aria-label="Machine view">
      <div class="cards">
        {props.value === null
          ? <Card title="Model" class="wide"><NotTold route="/props" look={props} what="what is served" /></Card>
          : (
            <>
              <Speed metrics={metrics} slots={slots} />
              <Queue metrics={metrics} slots={slots} props={props.value} />
              <CacheHits metrics={metrics} slots={slots} />
              <Memory residency={residency} />
              <Experts residency={residency} />
              <Slots slots={slots} />
              <Model props={props.value} />
              <AllMetrics metrics={metrics} />
            </>
          )}
      </div>
    </section>
  );
}
