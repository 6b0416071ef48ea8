// Experts as a heat map: a row a bank, a column an expert, the colour what it had beside the average
// of its bank. The pointer or the arrow keys choose an expert, whose numbers are said in words; the
// same is there as a table.
import { useEffect, useRef, useState } from 'preact/hooks';

import { Num } from './parts.jsx';

const CELL_MIN = 3;   // CSS pixels; below this the map scrolls sideways
const CELL_MAX = 26;
const HOT = 3;        // times the average, and more: the last colour

const sumOf = (numbers) => numbers.reduce((sum, n) => sum + n, 0);
const loadOf = (bank, expert, sum) => (sum === 0 ? 0 : (bank.rows[expert] * bank.experts) / sum);

// As the style has them now: those of the legend.
function coloursOf(legend) {
  return Array.from(legend.querySelectorAll('.ramp i'), (cell) =>
    getComputedStyle(cell).backgroundColor.match(/[\d.]+/g).slice(0, 3).map(Number));
}

// From cold over the average to hot, mixed between four colours.
function colourOf(load, stops) {
  const at = load <= 1 ? load : 1 + (2 * (Math.min(load, HOT) - 1)) / (HOT - 1);
  const i = Math.min(2, Math.floor(at));
  const part = at - i;
  const mix = stops[i].map((c, k) => Math.round(c + (stops[i + 1][k] - c) * part));
  return `rgb(${mix.join(' ')})`;
}

const nameOf = (bank, number) => (bank.layer >= 0 ? `layer ${bank.layer}` : `bank ${number}`);

function Legend() {
  return (
    <p class="legend quiet">
      <span>A row is a bank, a column an expert.</span>
      <span>no rows</span>
      <span class="ramp" aria-hidden="true">{[0, 1, 2, 3].map((n) => <i key={n} class={`heat-${n}`} />)}</span>
      <span>{HOT}× the average and more</span>
    </p>
  );
}

function BankTable({ banks }) {
  return (
    <details>
      <summary>The same as a table</summary>
      <div class="table">
        <table>
          <thead><tr><th>bank</th><th>rows</th><th>experts used</th><th>busiest expert</th><th>its rows</th><th>tier</th></tr></thead>
          <tbody>
            {banks.map((bank, i) => {
              const most = Math.max(...bank.rows);
              return (
                <tr key={i}>
                  <th scope="row">{nameOf(bank, i)}</th>
                  <td><Num value={sumOf(bank.rows)} field={`bank.${i}.rows`} /></td>
                  <td><Num value={bank.rows.filter((n) => n > 0).length} /> of <Num value={bank.experts} /></td>
                  <td>{most > 0 ? <Num value={bank.rows.indexOf(most)} /> : '–'}</td>
                  <td><Num value={most} field={`bank.${i}.most`} /></td>
                  <td>{bank.tier}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </details>
  );
}

export function HeatMap({ banks }) {
  const canvas = useRef(null);
  const frame = useRef(null);
  const whole = useRef(null);
  const [width, setWidth] = useState(600);
  const [dark, setDark] = useState(0);  // counts changes of the colours
  const [chosen, setChosen] = useState(null);
  const columns = Math.max(...banks.map((b) => b.experts));
  const cell = Math.max(CELL_MIN, Math.min(CELL_MAX, Math.floor(width / columns)));
  const gap = cell > 6 ? 1 : 0;

  useEffect(() => {
    const sizes = new ResizeObserver(([entry]) => setWidth(entry.contentRect.width));
    sizes.observe(frame.current);
    const scheme = matchMedia('(prefers-color-scheme: dark)');
    const changed = () => setDark((n) => n + 1);
    scheme.addEventListener('change', changed);
    const themes = new MutationObserver(changed);
    themes.observe(document.documentElement, { attributeFilter: ['data-theme'] });
    return () => {
      sizes.disconnect();
      themes.disconnect();
      scheme.removeEventListener('change', changed);
    };
  }, []);

  useEffect(() => {
    const scale = window.devicePixelRatio || 1;
    const target = canvas.current;
    target.width = columns * cell * scale;
    target.height = banks.length * cell * scale;
    const paint = target.getContext('2d');
    paint.scale(scale, scale);
    const stops = coloursOf(whole.current);
    banks.forEach((bank, row) => {
      const sum = sumOf(bank.rows);
      for (let expert = 0; expert < bank.experts; ++expert) {
        paint.fillStyle = colourOf(loadOf(bank, expert, sum), stops);
        paint.fillRect(expert * cell, row * cell, cell - gap, cell - gap);
      }
    });
    if (!chosen) return;
    paint.strokeStyle = getComputedStyle(target).color;
    paint.lineWidth = 2;
    paint.strokeRect(chosen.expert * cell, chosen.row * cell, cell - gap, cell - gap);
  }, [banks, cell, dark, chosen, columns]);

  const choose = (row, expert) => {
    const r = Math.max(0, Math.min(banks.length - 1, row));
    setChosen({ row: r, expert: Math.max(0, Math.min(banks[r].experts - 1, expert)) });
  };
  const onKeyDown = (event) => {
    const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] ?? [0, 0];
    if (down === 0 && right === 0) return;
    event.preventDefault();
    if (chosen) choose(chosen.row + down, chosen.expert + right);
    else choose(0, 0);
  };
  const onPointerMove = (event) => {
    const box = canvas.current.getBoundingClientRect();
    choose(Math.floor((event.clientY - box.top) / cell), Math.floor((event.clientX - box.left) / cell));
  };

  const bank = chosen && banks[chosen.row];
  return (
    <div class="heat-map" ref={whole}>
      <div class="frame" ref={frame}>
        <canvas
          ref={canvas} class="heat" style={{ width: `${columns * cell}px`, height: `${banks.length * cell}px` }} tabIndex={0} role="img"
          aria-label={`Rows that each of up to ${columns} experts had, ${banks.length} banks. Arrow keys choose an expert.`}
          aria-describedby="heat-said" onKeyDown={onKeyDown} onPointerMove={onPointerMove} onPointerDown={onPointerMove}
        />
      </div>
      <p id="heat-said" class="said" role="status">
        {bank
          ? `${nameOf(bank, chosen.row)}, expert ${chosen.expert}: ${bank.rows[chosen.expert].toLocaleString('en')} rows, ${loadOf(bank, chosen.expert, sumOf(bank.rows)).toFixed(2)}× the average; in ${bank.tier}`
          : 'Point at a cell, or use the arrow keys.'}
      </p>
      <Legend />
      <BankTable banks={banks} />
    </div>
  );
}
