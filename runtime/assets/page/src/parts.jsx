// Small things that the views share.
import { Component, createContext } from 'preact';
import { useContext, useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';

export const AppContext = createContext(null);

// The app, and this component again whenever its state changes.
export function useApp() {
  const app = useContext(AppContext);
  const [, again] = useState(0);
  useEffect(() => app.subscribe(() => again((n) => n + 1)), [app]);
  return app;
}

// A component that is made again only when one of its properties is another.
export function pure(render) {
  return class extends Component {
    shouldComponentUpdate(next) {
      return Object.keys({ ...next, ...this.props }).some((name) => next[name] !== this.props[name]);
    }
    render(props) { return render(props); }
  };
}

const PATHS = {
  plus: 'M12 5v14M5 12h14',
  send: 'M12 19V5M6 11l6-6 6 6',
  stop: 'M7 7h10v10H7z',
  menu: 'M4 7h16M4 12h16M4 17h16',
  close: 'M6 6l12 12M18 6L6 18',
  settings: 'M4 8h10M18 8h2M4 16h2M10 16h10M14 5v6M6 13v6',
  machine: 'M5 5h14v10H5zM9 19h6M12 15v4M8 9h3M8 11.500h6',
  copy: 'M9 9h10v10H9zM5 15V5h10',
  check: 'M5 12l5 5 9-10',
  retry: 'M5 12a7 7 0 1 0 2-5M5 4v4h4',
  edit: 'M5 19l1-4L16 5l3 3L9 18zM14 7l3 3',
  trash: 'M5 7h14M9 7V5h6v2M7 7l1 12h8l1-12',
  download: 'M12 4v11M7 11l5 5 5-5M5 20h14',
  left: 'M14 6l-6 6 6 6',
  right: 'M10 6l6 6-6 6',
  down: 'M12 5v14M6 13l6 6 6-6',
  tool: 'M14 6a4 4 0 0 0 4 5l-8 8-3-3 8-8a4 4 0 0 1-1-2z',
  think: 'M9 18h6M10 21h4M8 14a6 6 0 1 1 8 0c-.7.700-1 1.200-1 2H9c0-.800-.300-1.300-1-2z',
};

export const Icon = ({ name }) => (
  <svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
    <path d={PATHS[name]} fill={name === 'stop' ? 'currentColor' : 'none'} />
  </svg>
);

// A button of an icon, with its name for those who do not see it.
export const IconButton = ({ icon, label, shown, class: more = '', ...rest }) => (
  <button type="button" class={`icon-button ${more}`} aria-label={shown ? undefined : label} title={label} {...rest}>
    <Icon name={icon} />{shown && <span>{shown}</span>}
  </button>
);

// A number as the server gave it, to be read by people.
export const Num = ({ value, field, digits = 0, unit = '' }) => (
  <data value={value} data-field={field}>
    {Number(value).toLocaleString('en', { maximumFractionDigits: digits })}{unit && ` ${unit}`}
  </data>
);

export function formatBytes(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? value : value.toFixed(1)} ${units[unit]}`;
}

export const Bytes = ({ value, field }) => <data value={value} data-field={field}>{formatBytes(value)}</data>;

// A modal dialog: the browser keeps the focus inside, Escape closes it, and the focus goes back.
export function Dialog({ title, onClose, class: more = '', children }) {
  const dialog = useRef(null);
  const gone = useRef(false);
  const end = () => {
    if (gone.current) return;  // the browser tells of each close once more, later
    gone.current = true;
    dialog.current.close();
    onClose();
  };
  useLayoutEffect(() => {
    const shown = dialog.current;
    shown.showModal();
    return () => {
      gone.current = true;
      shown.close();
    };
  }, []);
  return (
    <dialog
      ref={dialog}
      class={`dialog ${more}`}
      aria-labelledby="dialog-title"
      onCancel={(event) => { event.preventDefault(); end(); }}
      onClose={end}
      onMouseDown={(event) => { if (event.target === dialog.current) end(); }}
    >
      <div class="dialog-body">
        <header>
          <h2 id="dialog-title">{title}</h2>
          <IconButton icon="close" label="Close" onClick={end} />
        </header>
        {children}
      </div>
    </dialog>
  );
}
