/** Tests chat templates: their input, their refusals, their sources. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { Template } from '@huggingface/jinja';
import { some } from '../../../test/support/size.js';
import { type ChatMessage, type ChatOptions, renderChat } from '../src/chat.js';
import { tokenizerFromGguf } from '../src/gguf-vocabulary.js';
import { tokenizerFromJson } from '../src/tokenizer-json.js';

const CHATML =
  "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}" +
  "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
const STRICT =
  "{{ bos_token }}{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}" +
  "{{ raise_exception('Roles must alternate user/assistant/user/assistant/...') }}{% endif %}" +
  "{{ '[INST] ' + m.content + ' [/INST]' if m.role == 'user' else ' ' + m.content + eos_token }}{% endfor %}";

const file = {
  model: { type: 'BPE', vocab: { '<s>': 0, '</s>': 1, a: 2, b: 3 }, merges: [] },
  decoder: { type: 'ByteLevel' },
  added_tokens: [
    { id: 0, content: '<s>', special: true },
    { id: 1, content: '</s>', special: true },
  ],
};
const tokenizer = (chat_template?: unknown, chatTemplate?: string) =>
  tokenizerFromJson({
    tokenizerJson: file,
    tokenizerConfig: { bos_token: '<s>', eos_token: '</s>', chat_template },
    chatTemplate,
  });
const hello: ChatMessage[] = [
  { role: 'user', content: 'Hi' },
  { role: 'assistant', content: 'Hello.' },
  { role: 'user', content: 'Bye' },
];

/** The output of Python's Jinja for templates with the constructs of each family; null where it refuses. */
const golden = JSON.parse(readFileSync(new URL('golden/chat.jsonl', import.meta.url), 'utf8')) as {
  readonly templates: Record<string, string>;
  readonly conversations: Record<string, { messages: ChatMessage[]; variables: Record<string, unknown> }>;
  readonly out: Record<string, Record<string, string | null>>;
};

describe('chat templates as in Python', () => {
  for (const [name, template] of Object.entries(golden.templates)) {
    test(name, () => {
      const plain = tokenizer(template);
      for (const [title, { messages, variables }] of Object.entries(golden.conversations)) {
        const want = golden.out[name]![title]!;
        if (want !== null) assert.equal(renderChat(plain, messages, { variables }), want, title);
        else assert.throws(() => renderChat(plain, messages, { variables }), { name: 'RopewalkError' }, title);
      }
    });
  }
  test('how values are written', () => {
    const values: Record<string, string> = {
      "['a', \"it's\", 'a\"b\\'c', '\\n\\t\\\\', none, true, 1, 2.0]": `['a', "it's", 'a"b\\'c', '\\n\\t\\\\', None, True, 1, 2.0]`,
      "{'k': {'b': []}, 'n': [nothing]}": "{'k': {'b': []}, 'n': [Undefined]}",
      "('a', 1)": "('a', 1)",
      none: 'None',
      nothing: '',
      "'x' ~ nothing ~ none ~ 1.5 ~ false": 'xNone1.5False',
      '[1, 2] | string | length': '6',
      "['é', text]": "['é', '\\x07\\xa0\\u2028\\U000e0001x 👍']",
      '[3, 1.5, 2] | min ~ [3, 1.5, 2] | max': '1.53',
      '[] | min': '',
      "'xxabxx'.strip('x') ~ 'xxab'.lstrip('xa') ~ 'a🐳🐳'.rstrip('🐳') ~ ' a '.strip()": 'abbaa',
      'none | trim': 'None',
      "{'a': 1}[nothing] is defined": 'False',
      "{'a': 1} is iterable ~ 1 is iterable": 'TrueFalse',
    };
    const text = '\x07\u00a0\u2028\u{e0001}x 👍';
    for (const [expression, want] of Object.entries(values))
      assert.equal(renderChat(tokenizer(`{{ ${expression} }}`), hello, { variables: { text } }), want, expression);
  });
});

describe('chat templates', () => {
  test('messages, generation prompt, BOS and EOS', () => {
    assert.equal(
      renderChat(tokenizer(CHATML), hello),
      '<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n',
    );
    assert.ok(renderChat(tokenizer(CHATML), hello, { addGenerationPrompt: false }).endsWith('Bye<|im_end|>\n'));
    assert.equal(renderChat(tokenizer(STRICT), hello), '<s>[INST] Hi [/INST] Hello.</s>[INST] Bye [/INST]');
  });

  test('a text, named texts, a record, a file, GGUF', () => {
    const named = tokenizer([
      { name: 'default', template: 'D' },
      { name: 'tool_use', template: 'T' },
    ]);
    assert.equal(renderChat(named, hello), 'D');
    assert.equal(renderChat(named, hello, { template: 'tool_use' }), 'T');
    assert.equal(renderChat(tokenizer({ rag: 'R' }), hello, { template: 'rag' }), 'R');
    assert.equal(renderChat(tokenizer('config', 'file'), hello), 'file');
    assert.equal(renderChat(tokenizer(), hello, { templateText: '{{ messages | length }}' }), '3');
    const gguf = tokenizerFromGguf(
      new Map<string, string | string[]>([
        ['tokenizer.ggml.model', 'llama'],
        ['tokenizer.ggml.tokens', ['a']],
        ['tokenizer.chat_template', 'G'],
        ['tokenizer.chat_template.rag', 'GR'],
      ]),
    );
    assert.equal(gguf.chatTemplate, 'G');
    assert.equal(renderChat(gguf, hello, { template: 'rag' }), 'GR');
  });

  test('variables, and fields of messages', () => {
    const text =
      '{% if enable_thinking is defined and not enable_thinking %}off{% endif %}{{ messages[0].name }}{{ tools is none }}';
    assert.equal(
      renderChat(tokenizer(text), [{ role: 'user', content: '', name: 'Ann' }], {
        variables: { enable_thinking: false },
      }),
      'offAnnTrue',
    );
    assert.equal(renderChat(tokenizer('{{ tools[0].name }}'), hello, { variables: { tools: [{ name: 'f' }] } }), 'f');
  });

  test('a message is not read as part of the template', () => {
    assert.equal(
      renderChat(tokenizer('{{ messages[0].content }}'), [{ role: 'user', content: '{{ bos_token }}</s>' }]),
      '{{ bos_token }}</s>',
    );
  });

  test('templates of every kind give what the library gives without bounds', () => {
    const tools = [
      {
        type: 'function',
        function: { name: 'f', parameters: { type: 'object', properties: { a: { type: 'string' } } } },
      },
    ];
    const texts = [
      CHATML,
      STRICT.replace('{{ bos_token }}', ''),
      // This template has tools as JSON, a namespace that remembers the last question, and reasoning that is cut away.
      "{%- set ns = namespace(last=-1) %}{%- for m in messages[::-1] %}{%- if m.role == 'user' and ns.last < 0 %}" +
        '{%- set ns.last = messages|length - 1 - loop.index0 %}{%- endif %}{%- endfor %}{%- for t in tools %}{{ t | tojson(indent=2) }}\n{%- endfor %}' +
        "{%- for m in messages %}\n  {%- set c = m.content.split('</think>')[-1].lstrip('\\n') %}{{ 1 if loop.index0 >= ns.last else 0 }}{{ c }}\n{%- endfor %}",
      // This template has macros with a caller, filters, loop controls, defaults, tests and slices.
      "{% macro box(x, y='-') %}[{{ y }}{{ caller() }}{{ x | upper }}]{% endmacro %}{% call box('a') %}in{% endcall %}" +
        '{% filter indent(4) %}a\nb{% endfilter %}{% for i in range(9, 0, -2) %}{% if i == 3 %}{% break %}{% endif %}{{ i }},{% endfor %}' +
        "{{ ['b', 'a'] | sort | join('+') }}{{ nothing | default('none') }}{{ 'abcdef'[1:4] }}{{ 'aXb'.replace('X', '--') }}{{ {'k': [1, 2.0]} | tojson }}" +
        "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | join(',') }}{{ strftime_now('%%') }}",
    ];
    for (const text of texts) {
      const variables = {
        messages: hello,
        tools,
        documents: null,
        bos_token: '<s>',
        eos_token: '</s>',
        add_generation_prompt: true,
      };
      assert.equal(renderChat(tokenizer(text), hello, { variables: { tools } }), new Template(text).render(variables));
    }
  });

  test('hostile templates end soon, in an error that says so', () => {
    const long = `{% set s = 'aaaaaaaaaa' %}${'{% set s = s ~ s %}'.repeat(18)}`;
    const nested = (text: string): string => `{% set a = ['lol'] %}${'{% set a = [a, a] %}'.repeat(60)}${text}`;
    const hostile: Record<string, RegExp> = {
      '{{ range(1000000000000) }}':
        /range\(\) gives 1000000000000 numbers, more than 100000\. It is damaged or hostile: pass a template/,
      '{{ range(100000000) }}': /range\(\)/,
      '{% for i in range(1000000000) %}{% endfor %}': /range\(\)/,
      '{{ range(0, 1, 0) }}': /range\(\)/,
      '{% set r = range(9999) %}{% for i in r %}{% for j in r %}{% endfor %}{% endfor %}':
        /it takes more than \d+ (steps|seconds)/,
      '{% macro f(x) %}{{ f(x) }}{{ f(x) }}{% endmacro %}{{ f(1) }}': /nest more than 500 nodes deep/,
      [nested('{{ a }}')]: /a value has \d+ characters, more than/,
      [nested('{{ a | tojson }}')]: /a value has \d+ characters, more than/,
      [nested("{{ a == 'x' }}")]: /a value has \d+ characters, more than/,
      '{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}':
        /a value has \d+ characters, more than/,
      [`{% set n = namespace(a=1) %}${'{% set n = namespace(a=n, b=n) %}'.repeat(60)}{{ n }}`]:
        /a value has \d+ characters, more than/,
      '{% set n = namespace() %}{% set n.a = n %}{{ n }}': /nest more than 100 deep/,
      [`${long}{% for i in range(99999) %}{{ s }}{% endfor %}`]: /it makes more than \d+ characters/,
      [`${long}{{ s | replace('a', s) }}`]: /replace may make/,
      [`${long}{% set f = s['replace'] %}{{ f('a', s) }}`]: /replace may make/,
      [`${long}{{ range(99999) | join(separator=s) }}`]: /join may make/,
      [`${long}{{ s.split('a') }}`]: /split may make/,
      "{{ 'a\\nb' | indent(1000000000) }}": /indent may make/,
      '{% filter indent(1000000000) %}a\nb{% endfilter %}': /indent may make/,
      '{{ [1] | tojson(indent=1000000000) }}': /tojson may make/,
      [`{{ ${'('.repeat(20000)}1${')'.repeat(20000)} }}`]: /nest too deeply/,
      [`${' '.repeat(200000)}{{ 1 }}`]: /white space in a row/,
      ['x'.repeat(2 ** 18 + 1)]: /it has 262145 characters, more than 262144/,
    };
    for (const [templateText, message] of some(Object.entries(hostile))) {
      assert.throws(
        () => renderChat(tokenizer(), hello, { templateText }),
        { name: 'RopewalkError', code: 'RANGE', message },
        templateText.slice(0, 60),
      );
    }
  });

  test('a template reaches only what it is given', () => {
    const texts = [
      "{{ ''.constructor }}{{ ''['constructor'] }}{{ messages.constructor }}{{ messages[0].__proto__ }}",
      '{{ range.constructor }}{{ {}.constructor }}{{ {}["hasOwnProperty"] }}{{ messages[0].items().constructor }}',
      '{{ self }}{{ this }}{{ caller }}{{ globalThis }}{{ process }}{{ cycler }}{{ lipsum }}',
    ];
    for (const text of texts) assert.equal(renderChat(tokenizer(text), hello), '');
    const refused = [
      "{% include 'x' %}",
      "{% import 'x' as y %}",
      "{{ range.constructor('')() }}",
      "{{ '' | toString }}",
    ];
    for (const text of refused) assert.throws(() => renderChat(tokenizer(text), hello), { code: 'FORMAT' }, text);
    renderChat(tokenizer("{% set n = namespace(__proto__={'taken': 1}) %}{{ {'__proto__': {'taken': 1}} }}"), hello);
    assert.equal('taken' in {}, false);
  });

  test('refusals', () => {
    const refuses = (
      code: string,
      message: RegExp,
      template: unknown,
      messages: unknown = hello,
      options: ChatOptions = {},
    ): void =>
      assert.throws(() => renderChat(tokenizer(template), messages as ChatMessage[], options), {
        name: 'RopewalkError',
        code,
        message,
      });
    refuses('UNSUPPORTED', /chat: template: the model has no chat template\. Give it a text to continue/, undefined);
    refuses('UNSUPPORTED', /the model has no template "x"\. Name one of its own: "rag"/, { rag: 'R' }, hello, {
      template: 'x',
    });
    refuses('RANGE', /the model's chat template refuses them: "Roles must alternate user\/assistant/, STRICT, [
      { role: 'assistant', content: 'x' },
    ]);
    const unread: Record<string, RegExp> = {
      '{% if %}': /line 1, {% if %}: "%}" is not expected here/,
      'a\n{{ messages': /line 2, {{ messages: Unexpected end of input/,
      "{# {{ #}\n{{ 'a' }}{% set x = ')' )%}": /line 2, {% set x = '\)' \)%}: "\)" is not expected here/,
      '{% generation %}\n\n{% if a %}{% for b in c %}{% endfor %}': /line 3, {% if a %}: {% endif %} is missing/,
      '{% for a in b %}\n{% endif %}': /line 2, {% endif %}: Unknown statement type: endif/,
      '{% set a %}b': /line 1, {% set a %}: the template ends inside/,
      [`{{ 1 }}\n{{ '\u001b[2J${'x'.repeat(99)}' + }}`]: /line 2, {{ ' \[2Jx+…: "}}" is not expected here/,
    };
    for (const [template, { source }] of Object.entries(unread))
      refuses('FORMAT', new RegExp(`^chat: template: it is no Jinja template: ${source}\\. Correct the`), template);
    refuses(
      'RANGE',
      /^chat: messages: .* refuses them: "no system role"\. Change them/,
      "{{ raise_exception('no system role') }}",
    );
    refuses(
      'RANGE',
      /^chat: messages: .* refuses them: "raise_exception\(\) without a message"/,
      '{{ raise_exception() }}',
    );
    const mistakes: Record<string, RegExp> = {
      '{{ nonesuch() }}': /line 1, {{ nonesuch\(\) }}: .*not a function/,
      "{{ 'a' | nonesuch }}": /Unknown StringValue filter: nonesuch/,
      '{% break %}': /line 1, {% break %}: break or continue outside of a loop/,
      '{{ strftime_now(5) }}': /strftime_now\(\) takes a format such as "%Y-%m-%d", not 5/,
      "{{ 'a\nb' | indent(-1) }}": /line 1, {{ 'a b' \| indent\(-1\) }}: .*-1/,
      '{% macro f(a) %}\n{{ a[0:9:true] }}{% endmacro %}\n{% if x %}{% elif true %}{{ "{{" }}{# c #}\n{{ f("t") }}{% endif %}':
        /line 2, {{ a\[0:9:true\] }}: Slice step must be numeric/,
      '{% for a in [1] %}{% if a %}{% endif %}\n{{ none + a }}{% endfor %}': /line 2, {{ none \+ a }}: Cannot perform/,
    };
    for (const [template, { source }] of Object.entries(mistakes)) {
      const next = 'Correct the template, or use another one\\.$';
      refuses(
        'FORMAT',
        new RegExp(`^chat: template: it cannot be rendered with these messages: .*${source}.* ${next}`),
        template,
      );
    }
    refuses('RANGE', /messages: expected a list of at least one message, got \[\]/, CHATML, []);
    refuses('RANGE', /messages: expected a list/, CHATML, 'hello');
    refuses('RANGE', /messages\[0\]\.role: expected a string such as user or assistant, got none/, CHATML, [
      { content: 'x' },
    ]);
    refuses('RANGE', /messages\[0\]\.role/, CHATML, [null]);
    const joins = /\+ joins a text to a text, but one side is a (ArrayValue|IntegerValue): change the messages/;
    refuses('FORMAT', joins, CHATML, [{ role: 'user', content: [{ type: 'text', text: 'Hi' }] }]);
    refuses('FORMAT', joins, "{{ 1 + 'a' }}");
    refuses('FORMAT', /min takes a list of numbers/, "{{ ['a'] | min }}");
    refuses('FORMAT', /Cannot access property/, '{{ {}[1] }}');
    refuses('RANGE', /messages\[0\]\.content: expected a string, got none/, CHATML, [{ role: 'user', content: null }]);
    refuses('RANGE', /content\[0\]: expected a part such as \{ type: 'text'/, CHATML, [
      { role: 'user', content: ['Hi'] },
    ]);
    refuses(
      'UNSUPPORTED',
      /messages\[0\]\.content\[0\]: expected a part of text, got "image_url"\. This decoder reads text/,
      CHATML,
      [{ role: 'user', content: [{ type: 'image_url' }] }],
    );
    refuses('RANGE', /messages\[1\]\.content: expected a string, got 5/, CHATML, [
      hello[0],
      { role: 'user', content: 5 },
    ]);
  });
});
