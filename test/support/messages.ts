/** Messages in ten languages, with code, numbers, emoji and odd spaces: what people send to a model. */

const SENTENCES = [
  'What is the capital of France? Answer in one word.',
  'Why is the sky blue, and what colour is it on Mars (roughly)?',
  '请用一句话解释什么是旋转位置编码。',
  '深圳明天的天气怎么样？我应该带伞吗？',
  'Qual é a diferença entre um kernel e um núcleo? Não entendi.',
  'Explique a função “softmax” com um exemplo numérico.',
  'Was ist der Unterschied zwischen „Größe“ und „Länge“? Übrigens: straße.',
  'Schreibe ein Gedicht über die Hafenstadt, höchstens 4 Zeilen!',
  'おはようございます。ロープの撚り方を教えてください。',
  'トランスフォーマーの仕組みを三行でまとめて。',
  '안녕하세요! 파이썬으로 정렬 함수를 작성해 주세요.',
  'Объясни, пожалуйста, что такое внимание в нейросетях.',
  'Сколько будет 3,14 × 10² − 7/8?',
  'ما هي عاصمة مصر؟ أجب بجملة واحدة.',
  'اكتب دالة بلغة بايثون تحسب المتوسط.',
  'नमस्ते, मुझे एक छोटी कहानी सुनाओ।',
  '¿Cuál es el río más largo de Sudamérica? ¡Gracias!',
  "Pourquoi l'œuf est-il dans le nid ? C'est l'été, n'est-ce pas…",
];
const ENDS = [
  '',
  '\n\n```python\ndef f(x):\n\treturn x ** 2  # 16 spaces:                end\n```\n',
  ' 🙂👩‍👩‍👧‍👦 12345678901234567890 1e-05 0x1F',
  '  two  spaces,\ttabs\r\nand line ends   ',
  ' <b>HTML</b> & $x_{i+1} = \\frac{1}{2}$ don’t I’LL we’ve',
  ' é (combining) ﬁ ½ ℝ 𝔸 \u00a0\u200b end',
  ' https://example.org/a?b=c&d=%20#e user@example.org',
  ' {"role": "user", "content": null, "list": [1, 2.5, -3]}',
  ' AAAAAAAAAAAAAAAAAAAAAAAA ---------- ======= ....... !!!',
  ' SELECT * FROM t WHERE a<>b;',
  ' the ends of lines\n\n\n\n  and   more',
  ' x',
];

/** Two hundred messages: every language with every end. */
export const MESSAGES: readonly string[] = SENTENCES.flatMap((sentence) => ENDS.map((end) => sentence + end)).slice(
  0,
  200,
);
