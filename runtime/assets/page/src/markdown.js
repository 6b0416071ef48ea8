// Markdown of a model, which nobody trusts, into blocks that are safe to show. Raw HTML is shown as
// the text it is but for a few plain tags; images are not loaded but named, with a link; links open
// elsewhere and tell nothing of this page. What comes out goes through DOMPurify into nodes, never
// through innerHTML.
import DOMPurify from 'dompurify';
import { Marked } from 'marked';

import { highlighted } from './highlight.js';

const PLAIN_TAG = /^<\/?(?:br|sub|sup|kbd|b|i|u|s|em|strong|mark|small)\s*\/?>$/i;
const LINK = /^(?:https?:|mailto:)/i;
const CLASS = /^(?:hljs(?:-[\w-]+|)|language-[\w+#.-]+|table|left-out)$/;

const escaped = (text) => text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

const marked = new Marked({
  gfm: true,
  renderer: {
    html({ text, block }) {
      if (PLAIN_TAG.test(text.trim())) return text;
      return block ? `<p>${escaped(text.trim())}</p>` : escaped(text);
    },
    image({ href, text }) {
      const name = escaped(text || href);
      const link = LINK.test(href) ? `<a href="${escaped(href)}">${name}</a>` : name;
      return `<span class="left-out">image not loaded: ${link}</span>`;
    },
    checkbox({ checked }) { return checked ? '☑ ' : '☐ '; },
    code({ text, lang }) { return `<pre><code>${highlighted(text, lang)}</code></pre>`; },
    table(token) {
      const cell = (name) => (c) => `<${name}${c.align ? ` align="${c.align}"` : ''}>${this.parser.parseInline(c.tokens)}</${name}>`;
      const row = (cells, name) => `<tr>${cells.map(cell(name)).join('')}</tr>`;
      return `<div class="table"><table><thead>${row(token.header, 'th')}</thead>`
        + `<tbody>${token.rows.map((r) => row(r, 'td')).join('')}</tbody></table></div>`;
    },
  },
});

const purify = DOMPurify(window);
purify.addHook('uponSanitizeAttribute', (node, data) => {
  if (data.attrName !== 'class') return;
  data.attrValue = data.attrValue.split(/\s+/).filter((name) => CLASS.test(name)).join(' ');
  data.keepAttr = data.attrValue !== '';
});
purify.addHook('afterSanitizeAttributes', (node) => {
  if (node.tagName !== 'A') return;
  if (!LINK.test(node.getAttribute('href') ?? '')) return node.removeAttribute('href');
  node.setAttribute('target', '_blank');
  node.setAttribute('rel', 'noopener noreferrer nofollow');
});

const RULES = {
  ALLOWED_TAGS: ['a', 'b', 'blockquote', 'br', 'code', 'del', 'div', 'em', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'hr', 'i', 'kbd',
    'li', 'mark', 'ol', 'p', 'pre', 's', 'small', 'span', 'strong', 'sub', 'sup', 'table', 'tbody', 'td', 'th', 'thead', 'tr', 'u', 'ul'],
  ALLOWED_ATTR: ['href', 'title', 'class', 'start', 'align'],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  ALLOWED_URI_REGEXP: LINK,
  ADD_URI_SAFE_ATTR: ['start', 'align'],  // no addresses: the rule above is not theirs
  RETURN_DOM_FRAGMENT: true,
};

export const safeNodes = (html) => purify.sanitize(html, RULES);

// The top-level blocks of a text: code apart, so that the page can show it with its own tools. `key`
// is equal while a block's text is: what is complete need not be made again.
export function blocksOf(text) {
  const tokens = marked.lexer(text);
  const blocks = [];
  for (const token of tokens) {
    if (token.type === 'space') continue;
    if (token.type === 'code') {
      blocks.push({ type: 'code', key: token.raw, text: token.text, language: (token.lang ?? '').split(/\s/, 1)[0] });
      continue;
    }
    const one = [token];
    one.links = tokens.links;
    blocks.push({ type: 'html', key: token.raw, html: () => marked.parser(one) });
  }
  return blocks;
}
