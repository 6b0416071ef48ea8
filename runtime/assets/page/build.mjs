// build.mjs SOURCE WORK: bundles the page of SOURCE with the packages installed in WORK and writes
// WORK/page_assets.cc: every file compressed, named by the hash of its bytes, with what serves it.
import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';

const [source, work] = process.argv.slice(2);
const require = createRequire(join(work, 'package.json'));
const esbuild = require('esbuild');

const common = {
  bundle: true,
  minify: true,
  write: false,
  charset: 'utf8',
  legalComments: 'none',  // the notices are one file of their own, below
  target: ['es2022'],
  nodePaths: [join(work, 'node_modules')],
  logLevel: 'warning',
};

async function bundle(name, options) {
  const result = await esbuild.build({ ...common, entryPoints: [join(source, 'src', name)], ...options });
  return Buffer.from(result.outputFiles[0].contents);
}

const hashOf = (bytes) => createHash('sha256').update(bytes).digest('hex').slice(0, 16);

// The licences of what the bundle holds, as the packages carry them.
function notices() {
  const packages = Object.keys(JSON.parse(readFileSync(join(source, 'package.json'), 'utf8')).dependencies);
  const parts = packages.map((name) => {
    const folder = join(work, 'node_modules', name);
    const { version, license } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
    const text = ['LICENSE', 'LICENSE.md', 'license'].map((file) => {
      try {
        return readFileSync(join(folder, file), 'utf8').trim();
      } catch {
        return '';
      }
    }).find((found) => found !== '') ?? '';
    if (text === '') throw new Error(`${name} carries no licence text`);
    return `${name} ${version} (${license})\n\n${text}\n`;
  });
  return Buffer.from(`The page at / holds these packages.\n\n${parts.join('\n----\n\n')}`);
}

const assets = [];
function add(path, type, bytes, options = {}) {
  assets.push({ path, type, bytes, plain: options.plain ?? false, hashed: options.hashed ?? false });
  return path;
}
function addHashed(name, ending, type, bytes) {
  return add(`/assets/${name}-${hashOf(bytes)}${ending}`, type, bytes, { hashed: true }).slice(1);
}

const jsType = 'text/javascript; charset=utf-8';
const script = addHashed('page', '.js', jsType, await bundle('main.jsx', {
  format: 'esm', jsx: 'automatic', jsxImportSource: 'preact',
}));
const theme = addHashed('theme', '.js', jsType, await bundle('theme.js', { format: 'iife' }));
const style = addHashed('page', '.css', 'text/css; charset=utf-8', await bundle('style.css', {}));
const icon = addHashed('icon', '.svg', 'image/svg+xml', readFileSync(join(source, 'src/icon.svg')));
writeFileSync(join(work, 'notices.txt'), notices());  // the bundle carries it, too
add('/assets/notices.txt', 'text/plain; charset=utf-8', notices());
const html = readFileSync(join(source, 'src/index.html'), 'utf8')
  .replaceAll('{{script}}', script).replaceAll('{{theme}}', theme)
  .replaceAll('{{style}}', style).replaceAll('{{icon}}', icon);
if (html.includes('{{')) throw new Error('index.html names something that build.mjs does not make');
add('/index.html', 'text/html; charset=utf-8', Buffer.from(html), { plain: true });

const chars = (bytes) => Array.from(bytes, (b) => (b > 127 ? b - 256 : b)).join(',');
let arrays = '';
let rows = '';
let sum = 0;
let sumGzip = 0;
assets.forEach(({ path, type, bytes, plain, hashed }, i) => {
  const gzip = gzipSync(bytes, { level: 9 });
  sum += bytes.length;
  sumGzip += gzip.length;
  arrays += `constexpr char kGzip${i}[] = {${chars(gzip)}};\n`;
  if (plain) arrays += `constexpr char kPlain${i}[] = {${chars(bytes)}};\n`;
  rows += `    {.path = ${JSON.stringify(path)}, .content_type = ${JSON.stringify(type)},`
    + ` .hash = "${hashOf(bytes)}",`
    + ` .plain = ${plain ? `{kPlain${i}, sizeof kPlain${i}}` : '{}'}, .gzip = {kGzip${i}, sizeof kGzip${i}},`
    + ` .hashed_path = ${hashed}},\n`;
});
writeFileSync(join(work, 'page_assets.cc'), `// Written by runtime/assets/page/build.mjs.
#include "runtime/serve/page.h"

namespace bloomery::serve {
namespace {
${arrays}
constexpr PageAsset kAssets[] = {
${rows}};
}  // namespace
std::span<const PageAsset> PageAssets() { return kAssets; }
bool PageIsBuilt() { return true; }
}  // namespace bloomery::serve
`);
writeFileSync(join(work, 'sizes.json'), JSON.stringify(
  { bytes: sum, gzip: sumGzip, files: Object.fromEntries(assets.map((a) => [a.path, a.bytes.length])) }, null, 1));
