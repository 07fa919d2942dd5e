/** Chat templates: what they see, what they refuse, where they come from. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type ChatMessage, type ChatOptions, renderChat } from '../../src/model/chat.js';
import { tokenizerFromGguf } from '../../src/model/gguf-vocabulary.js';
import { tokenizerFromJson } from '../../src/model/tokenizer.js';

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
  tokenizerFromJson({ tokenizerJson: file, tokenizerConfig: { bos_token: '<s>', eos_token: '</s>', chat_template }, chatTemplate });
const hello: ChatMessage[] = [
  { role: 'user', content: 'Hi' },
  { role: 'assistant', content: 'Hello.' },
  { role: 'user', content: 'Bye' },
];

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
    const text = '{% if enable_thinking is defined and not enable_thinking %}off{% endif %}{{ messages[0].name }}{{ tools is none }}';
    assert.equal(
      renderChat(tokenizer(text), [{ role: 'user', content: '', name: 'Ann' }], { variables: { enable_thinking: false } }),
      'offAnntrue',
    );
    assert.equal(renderChat(tokenizer('{{ tools[0].name }}'), hello, { variables: { tools: [{ name: 'f' }] } }), 'f');
  });

  test('a message is not read as part of the template', () => {
    assert.equal(
      renderChat(tokenizer('{{ messages[0].content }}'), [{ role: 'user', content: '{{ bos_token }}</s>' }]),
      '{{ bos_token }}</s>',
    );
  });

  test('refusals', () => {
    const refuses = (code: string, message: RegExp, template: unknown, messages: unknown = hello, options: ChatOptions = {}): void =>
      assert.throws(() => renderChat(tokenizer(template), messages as ChatMessage[], options), { name: 'RopewalkError', code, message });
    refuses('UNSUPPORTED', /a model with a chat template "default", got "none"\. It may be no chat model: give it a text/, undefined);
    refuses('UNSUPPORTED', /template "x", got \["rag"\]\. Name one of its templates: "rag"/, { rag: 'R' }, hello, { template: 'x' });
    refuses('RANGE', /what the model's chat template takes, got "Roles must alternate user\/assistant/, STRICT, [
      { role: 'assistant', content: 'x' },
    ]);
    refuses('FORMAT', /chat: template: expected a Jinja template, got/, '{% if %}');
    refuses('FORMAT', /Jinja/, '{{ messages');
    refuses('RANGE', /chat template takes, got/, '{{ nonesuch() }}');
    refuses('RANGE', /messages: expected a list of at least one message, got \[\]/, CHATML, []);
    refuses('RANGE', /messages: expected a list/, CHATML, 'hello');
    refuses('RANGE', /messages\[0\]\.role: expected a text such as user or assistant, got none/, CHATML, [{ content: 'x' }]);
    refuses('RANGE', /messages\[0\]\.role/, CHATML, [null]);
    refuses('RANGE', /messages\[1\]\.content: expected a text, got 5/, CHATML, [hello[0], { role: 'user', content: 5 }]);
  });
});
