// Texts for comparing tokenizers, from a fixed seed. Left out, because JavaScript's \s and Unicode's
// White_Space disagree on them: U+0085 and U+FEFF. Random characters come from blocks that did not
// change between the Unicode versions of the libraries at hand.
const SEED = 20261129;

function makeRandom(seed) {
  let state = seed >>> 0;
  return (n) => {  // an integer in [0, n)
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) % n;
  };
}

const SENTENCES = [
  "The kettle isn't boiling yet, so we'll wait; they've said it'd take 15 minutes.",
  "I'M SURE THEY'RE HERE, WE'VE SEEN SHE'LL COME, HE'D SAID 'TIS O'CLOCK",
  'Der Bäcker verkauft jeden Morgen süße Brötchen für 2,50 € – außer sonntags.',
  "L'été dernier, nous avons mangé des crêpes à la plage près de chez Zoë.",
  '¿Dónde está el niño? ¡Mañana vendrá con su tía a las 10:30!',
  'Våren är här och ängarna blommar; små åar rinner ut i sjön.',
  'Żółta łódź płynie wolno po rzece, a na brzegu śpią gęsi.',
  'Příliš mnoho koťat spí v naší kuchyni každý večer.',
  'Αύριο το πρωί θα ψήσουμε ψωμί με ελιές και ρίγανη.',
  'Завтра утром мы испечём хлеб с тмином, а потом пойдём в лес за ёлкой.',
  'Вранці їжак з’їв яблуко й ґречно вклонився.',
  'מחר בבוקר נאפה לחם עם זיתים, ואחר כך נצא לטייל.',
  'שָׁלוֹם לְכֻלָּם',
  'غدًا سنخبز الخبز مع الزيتون، ثم نمشي إلى البحر ١٢٣٤٥.',
  'کل صبح ہم روٹی پکائیں گے۔ فردا ۴۵۶ نان می‌پزیم.',
  'कल सुबह हम रोटी पकाएँगे और फिर बाज़ार जाएँगे। १२३',
  'আগামীকাল সকালে আমরা রুটি বানাব।',
  'நாளை காலை ரொட்டி சுடுவோம், பிறகு கடைக்குப் போவோம்.',
  'พรุ่งนี้เช้าเราจะอบขนมปัง แล้วไปเดินเล่นริมแม่น้ำ ๑๒๓',
  'Ngày mai chúng tôi sẽ nướng bánh mì rồi đi chợ ở phố cổ.',
  'Yarın sabah ekmek pişireceğiz, İstanbul’da ışıklar sönünce uyuruz.',
  '明天早上我们烤面包，然后去河边散步。一共花了123.45元！',
  '明日の朝パンを焼いて、それから川べりを散歩します。カタカナとひらがな、ＡＢＣ１２３。',
  '내일 아침에 빵을 굽고 강가를 산책할 거예요. 가격은 3,000원입니다.',
  'ხვალ დილით პურს გამოვაცხობთ. Վաղը հաց կթխենք։',
  'ነገ ጠዋት ዳቦ እንጋግራለን።',
];

const CODE = [
  'def mean(xs):\n    """Arithmetic mean."""\n    return sum(xs) / len(xs) if xs else 0.0\n',
  'for (int i = 0; i < n; ++i) {\n\tif (a[i] != b[i]) return false;\n}\n',
  'const total = items.reduce((sum, { price, count }) => sum + price * count, 0);\r\n',
  'SELECT name, COUNT(*) AS n FROM birds WHERE seen_at >= \'2024-05-01\' GROUP BY 1;',
  '{"name": "heron", "tags": ["grey", null, true], "size_cm": 9.5e1}\n',
  '<ul class="list">\n  <li data-id="7">caf&eacute;</li>\n</ul>\n<!-- end -->',
  'fn main() {\n    let v: Vec<u32> = (0..10).map(|x| x * x).collect();\n    println!("{:?}", v);\n}',
  '#!/bin/sh\nset -eu\nfor f in *.txt; do\n  wc -l "$f" | awk \'{print $1}\'\ndone\n',
  '\\begin{equation}\n  e^{i\\pi} + 1 = 0 \\quad \\forall x \\in \\mathbb{R}\n\\end{equation}',
  'https://example.org/a/b?q=%C3%A9&n=10#top user@example.org 192.168.0.1:8080',
  '| a | b |\n|---|---|\n| 1 | **2** |\n\n- [ ] item\n  1. nested_item `x__y`\n',
  '0x7FFF_FFFFu 0b1010 1_000_000 3.14159e-10 1/2 50% $9.99 #42 @x &y',
];

const EMOJI = ['😀', '👩‍👩‍👧‍👦', '👍🏽', '🇯🇵🇫🇷', '❤️', '🏳️‍🌈', '✅', '☕︎', '🧑🏿‍🚀', '1️⃣', '🤷‍♀️', '🫠'];

const SPECIAL = [
  '<|im_start|>', '<|im_end|>', '<|endoftext|>', '<think>', '</think>', '<tool_call>', '</tool_call>',
  '<tool_response>', '</tool_response>', '<|fim_prefix|>', '<|fim_middle|>', '<|fim_suffix|>',
  '<|file_sep|>', '<|repo_name|>', '<|vision_start|>', '<|image_pad|>', '<|im_start', 'im_end|>', '<|', '|>',
  '<|im_end|', '<<|im_end|>>', '<|im_ end|>', '</s>', '<s>', '[EOS]',
];

const BLANKS = [' ', '  ', '   ', '\t', '\n', '\r\n', '\r', '\n\n', ' \n', '\n ', '\t\t', '\u00a0', '\u2003',
  '\u3000', '\u2028', '\u2029', '\u202f', '\u1680', '\u200b', '\u200d', '\v', '\f', '        ', '\n\n\n\n'];

const MARKS = ['\u0301', '\u0308', '\u0323', '\u20dd', '\u0338', '\u093c', '\u0e31', '\u05bc', '\u064b', '\ufe0f'];

const BLOCKS = [
  [0x20, 0x7e], [0x20, 0x7e], [0xa1, 0x17f], [0x391, 0x3a1], [0x3b1, 0x3ce], [0x410, 0x44f], [0x5d0, 0x5ea],
  [0x621, 0x64a], [0x660, 0x669], [0x905, 0x939], [0x966, 0x96f], [0xe01, 0xe30], [0x1100, 0x1112],
  [0x2010, 0x2027], [0x2070, 0x2071], [0x2150, 0x2188], [0x2190, 0x21ff], [0x2200, 0x22ff], [0x2460, 0x249b],
  [0x2500, 0x257f], [0x3041, 0x3096], [0x30a1, 0x30fa], [0x4e00, 0x9fa5], [0xac00, 0xd7a3], [0xe000, 0xe0ff],
  [0xff01, 0xff5e], [0x10400, 0x1044f], [0x1d400, 0x1d454], [0x1d7ce, 0x1d7ff], [0x1f300, 0x1f5ff],
  [0x20000, 0x200ff],
];

export function makeCorpus() {
  const random = makeRandom(SEED);
  const pick = (list) => list[random(list.length)];
  const character = () => {
    const [low, high] = pick(BLOCKS);
    return String.fromCodePoint(low + random(high - low + 1));
  };
  const repeat = (count, make) => Array.from({ length: count }, make).join('');
  const digits = () => repeat(1 + random(12), () => String(random(10)));
  const word = () => pick(pick(SENTENCES).split(' '));
  // A slice by characters, so that sentences begin and end anywhere.
  const slice = (text) => {
    const characters = Array.from(text);
    const begin = random(characters.length);
    return characters.slice(begin, begin + 1 + random(characters.length)).join('');
  };
  const recipes = [
    () => `${slice(pick(SENTENCES))}${pick(BLANKS)}${slice(pick(SENTENCES))}`,
    () => `${slice(pick(CODE))}${pick(BLANKS)}${slice(pick(CODE))}`,
    () => repeat(1 + random(30), () => pick([word, () => pick(BLANKS), digits, () => pick(EMOJI)])()),
    () => repeat(1 + random(40), character),
    () => repeat(1 + random(20), () => character() + (random(3) ? '' : pick(MARKS))),
    () => repeat(1 + random(12), () => pick([() => pick(SPECIAL), word, () => pick(BLANKS)])()),
    () => repeat(1 + random(8), () => repeat(1 + random(20), () => pick(BLANKS)) + pick([word, digits, () => '!'])()),
    () => repeat(1 + random(25), () => pick(["'s", "'T", "'Re", "'ll", "'m", "'D", "'", '’s', 'x', ' ', '5', '.'])),
    () => `<|im_start|>user\n${slice(pick(SENTENCES))}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n`,
  ];
  const texts = ['', ...SENTENCES, ...CODE, ...EMOJI, ...SPECIAL, ...BLANKS, ...MARKS];
  texts.push(' '.repeat(300), '\n'.repeat(300), 'a'.repeat(300), '7'.repeat(50), '='.repeat(80), 'ab '.repeat(100));
  for (let i = 0; i < 2700; ++i) texts.push(recipes[i % recipes.length]());
  return texts.map((text) => text.normalize('NFC'));
}
