/**
 * Runs a chat template from an untrusted file within bounds.
 *
 * A template is a program: it can loop without end, or ask for a text of 10^12 characters, which ends the process. Here
 * every step of @huggingface/jinja is counted, and every value is measured before it is used. Results of `join`,
 * `replace` and `indent` are estimated first.
 *
 * @module
 */
import { Environment, Interpreter, parse, Template, tokenize } from '@huggingface/jinja';
import { RopewalkError } from 'ropewalk';
import { fail } from 'ropewalk/backend';
import { show } from 'ropewalk/internal';
import { type Node, stripped, textFilter, textOf, type Value } from './jinja-text.js';
import { placeOfMistake, placeOfNode, TRIMMED } from './template-places.js';

/** The most characters of a template. Real ones have some tens of thousands. */
const MAX_TEMPLATE = 2 ** 18;
/** The most white space in a row: the lexer takes quadratic time for it. */
const MAX_WHITE_SPACE = 2 ** 9;
/** The most nodes inside nodes. Real templates stay below a hundred; a few thousand fill the stack. */
const MAX_NESTING = 500;
/** The most nodes that are evaluated. A template takes some tens for each message; this many take about two seconds. */
const MAX_STEPS = 2 ** 22;
/** The steps of one pass of a loop, without its body. */
const PASS = 4;
/** The limit for cases that counting does not foresee, such as a slow machine. */
const MAX_SECONDS = 5;
/** The most characters of a value; a list also counts {@link ELEMENT} for each element. */
const MAX_VALUE = 2 ** 24;
/** The most characters of all values and all text written. */
const MAX_MADE = 2 ** 27;
/** The most characters of the largest result that one filter can have. */
const MAX_PRODUCT = 2 ** 26;
/** The characters that an element of a list counts for. */
const ELEMENT = 32;
/** The most lists inside lists: a value that contains itself has no end. */
const MAX_DEPTH = 100;
/** The limit of Jinja's own sandbox: pallets/jinja src/jinja2/sandbox.py, MAX_RANGE. */
const MAX_RANGE = 100_000;

/** The library's classes of values, which it does not export. */
const made = /* @__PURE__ */ new Environment();
const UNDEFINED = made.set('nothing', undefined) as unknown as Value;
const StringValue = made.set('text', '').constructor as unknown as new (text: string) => Value;
const FunctionValue = made.set('method', () => '').constructor as unknown as new (
  run: (given: readonly Value[]) => Value,
) => Value;

/** The part of the library's class that is used here. */
type InterpreterClass = new (
  environment: unknown,
) => {
  evaluate(node: Node | undefined, environment: unknown): Value;
  run(program: Node): Value;
  evaluateBlock(statements: readonly Node[], environment: unknown): Value;
};

/** The facts about a node while it is evaluated. */
interface Frame {
  readonly node: Node | undefined;
  /** The size of the value that a filter or a member access is applied to. */
  operand: number;
  /** The text that a member access is applied to. */
  text?: string;
  /** The type of a member's key. */
  keyType?: string;
  /** The type of the first side of an operator; then the type of the side beside a text. */
  side?: string;
  mixed?: string;
  /** The largest argument: a text's length, or a number's magnitude. */
  argument: number;
}

/** The filters and methods whose result can be as long as operand times argument. */
const MULTIPLIES = new Set<unknown>(['join', 'replace', 'indent', 'tojson', 'map', 'sort']);
/** The nodes whose children are written out, except `test`, `iterable` and `value`. */
const WRITES = new Set(['Program', 'If', 'For', 'Macro', 'Set', 'FilterStatement', 'CallStatement', 'CallExpression']);

/** Adds the argument of `strip`, `lstrip` and `rstrip`, which the library ignores. */
function withStrip(node: Node, value: Value, text: string | undefined, environment: unknown): Value {
  const name = node.property?.value;
  if (value.type !== 'FunctionValue' || text === undefined || !/^[lr]?strip$/.test(String(name))) return value;
  const usual = value.value as (given: readonly Value[], environment: unknown) => Value;
  return new FunctionValue((given) =>
    given[0]?.type === 'StringValue'
      ? new StringValue(stripped(String(name), text, given[0].value as string))
      : usual(given, environment),
  );
}

function tooMuch(what: string): never {
  const next = 'It is damaged or hostile: pass a template that you trust as templateText, or fewer messages.';
  return fail('RANGE', 'chat: template', `${what}. ${next}`);
}

class BoundedInterpreter extends (Interpreter as unknown as InterpreterClass) {
  #steps = 0;
  /** The characters of all values so far. */
  #made = 0;
  #nesting = 0;
  #frame: Frame | undefined;
  /** The innermost statement or expression that is evaluated, or was when an error ended it. */
  at: Node | undefined;
  readonly #start = performance.now();
  /** The sizes of values that do not change. Such a value has been counted. */
  readonly #sizes = new WeakMap<object, number>();
  /** The methods of texts: their name, and the text's length. */
  readonly #methods = new WeakMap<object, { readonly name: unknown; readonly size: number }>();

  /** Evaluates a node and counts it. The library calls it for every node. */
  override evaluate(node: Node | undefined, environment: unknown): Value {
    if (++this.#steps > MAX_STEPS) tooMuch(`it takes more than ${MAX_STEPS} steps`);
    if (this.#steps % 256 === 0) this.#checkClock();
    if (this.#nesting >= MAX_NESTING) tooMuch(`macros and expressions nest more than ${MAX_NESTING} nodes deep`);
    const parent = this.#frame;
    const frame: Frame = { node, operand: 0, argument: 0 };
    this.#frame = frame;
    this.#nesting++;
    let value: Value;
    try {
      value = this.#evaluate(node, environment, frame);
    } finally {
      this.#frame = parent;
      this.#nesting--;
    }
    if (node) this.#count(node, value, frame, parent);
    return value;
  }

  /** Evaluates a node, with Python's result where the library's differs. */
  #evaluate(node: Node | undefined, environment: unknown, frame: Frame): Value {
    const operator = node?.type === 'BinaryExpression' ? node.operator?.value : undefined;
    if (operator === '~') {
      const [left, right] = [this.evaluate(node!.left, environment), this.evaluate(node!.right, environment)];
      return new StringValue(textOf(left) + textOf(right));
    }
    const filter = node?.type === 'FilterExpression' ? node.filter?.value : undefined;
    const asText = textFilter(filter);
    if (asText) return new StringValue(asText(textOf(this.evaluate(node!.operand, environment))));
    if (filter === 'min' || filter === 'max') {
      const items = this.evaluate(node!.operand, environment).value;
      const numbers = Array.isArray(items) ? (items as readonly Value[]) : [];
      if (!numbers.every(({ value }) => typeof value === 'number'))
        throw new Error(`${filter} takes a list of numbers`);
      const sign = filter === 'min' ? 1 : -1;
      const sorted = [...numbers].sort((a, b) => sign * ((a.value as number) - (b.value as number)));
      return sorted[0] ?? UNDEFINED;
    }
    let value: Value;
    try {
      value = super.evaluate(node, environment);
    } catch (error) {
      // Under an undefined key, an object has nothing.
      if (node?.type === 'MemberExpression' && frame.keyType === 'UndefinedValue') return UNDEFINED;
      throw error;
    }
    const next = 'change the messages, or the template';
    if (operator === '+' && frame.mixed)
      throw new Error(`+ joins a text to a text, but one side is a ${frame.mixed}: ${next}`);
    return node?.type === 'MemberExpression' ? withStrip(node, value, frame.text, environment) : value;
  }

  /** Writes the parts of a block one after the other. */
  override evaluateBlock(statements: readonly Node[], environment: unknown): Value {
    const parts: string[] = [];
    const outer = this.at;
    for (const statement of statements) {
      this.at = statement;
      const value = this.evaluate(statement, environment);
      if (value.type !== 'NullValue' || /Expression$|Literal$|^Identifier$|^Ternary$/.test(statement.type))
        parts.push(textOf(value));
    }
    this.at = outer;
    return new StringValue(parts.join(''));
  }

  #checkClock(): void {
    if (performance.now() - this.#start > MAX_SECONDS * 1000) tooMuch(`it takes more than ${MAX_SECONDS} seconds`);
  }

  #count(node: Node, value: Value, frame: Frame, parent: Frame | undefined): void {
    const size = this.#sizeOf(value);
    if (size > MAX_VALUE)
      tooMuch(`a value has ${size} characters, more than ${MAX_VALUE} (an element of a list counts ${ELEMENT})`);
    if (size > 4096) this.#checkClock();
    if (node.type === 'MemberExpression' && value.type === 'FunctionValue') {
      this.#methods.set(value, { name: node.computed ? 'replace' : node.property?.value, size: frame.operand });
    }
    if (parent?.node) this.#countIn(parent, parent.node, node, value, size);
    if (this.#made > MAX_MADE)
      tooMuch(`it makes more than ${MAX_MADE} characters (an element of a list counts ${ELEMENT})`);
  }

  /** Counts a value for the node that it is a part of. */
  #countIn(parent: Frame, outer: Node, node: Node, value: Value, size: number): void {
    switch (outer.type) {
      case 'MemberExpression':
        if (outer.object === node) {
          parent.operand = size;
          if (value.type === 'StringValue') parent.text = value.value as string;
        } else parent.keyType = value.type;
        return;
      case 'FilterExpression':
      case 'FilterStatement': {
        if (isArgument(outer.filter?.args, node))
          parent.argument = Math.max(parent.argument, argumentSize(value, size));
        else parent.operand += size;
        const name = outer.filter?.type === 'CallExpression' ? outer.filter.callee?.value : outer.filter?.value;
        checkProduct(name, parent.operand, parent.argument);
        break;
      }
      case 'CallStatement':
      case 'CallExpression':
        if ((outer.callee ?? outer.call?.callee) === node) {
          const method = this.#methods.get(value);
          checkProduct(method?.name, method?.size ?? 0, parent.argument);
          return;
        }
        parent.argument = Math.max(parent.argument, argumentSize(value, size));
        break;
      case 'BinaryExpression':
        if (parent.side !== undefined && (parent.side === 'StringValue') !== (value.type === 'StringValue'))
          parent.mixed = value.type === 'StringValue' ? parent.side : value.type;
        parent.side = value.type;
        // JavaScript's == writes a list out to compare it with a text.
        if (outer.operator?.value === '==' || outer.operator?.value === '!=') this.#steps += Math.floor(size / 256);
        return;
    }
    const iterated = outer.iterable && (outer.iterable === node || outer.iterable.lhs === node);
    if (iterated) {
      this.#made += ELEMENT * (lengthOf(value) + 1);
      this.#steps += PASS * lengthOf(value);
    } else if (WRITES.has(outer.type) && outer.test !== node && outer.value !== node) this.#made += size;
  }

  /** Returns about how many characters a value has, written out. A new value is counted. */
  #sizeOf(value: Value): number {
    if (value.type === 'StringValue') {
      const { length } = value.value as string;
      // Short texts are covered by the count of elements and steps.
      if (length > ELEMENT && !this.#sizes.has(value)) {
        this.#sizes.set(value, length);
        this.#made += length;
      }
      return length;
    }
    return contains(value) ? this.#measure(value, 0, new Map()).size : 1;
  }

  /** @param changing - the sizes of namespaces, which are valid for this call only */
  #measure(value: Value, depth: number, changing: Map<object, number>): { size: number; fixed: boolean } {
    if (!contains(value)) return { size: ELEMENT + this.#sizeOf(value), fixed: true };
    const known = this.#sizes.get(value);
    if (known !== undefined) return { size: known, fixed: true };
    const seen = changing.get(value);
    if (seen !== undefined) return { size: seen, fixed: false };
    if (depth > MAX_DEPTH) tooMuch(`lists and objects nest more than ${MAX_DEPTH} deep`);
    let size = ELEMENT;
    let fixed = value.type !== 'NamespaceValue';
    for (const [key, item] of value.value.entries() as Iterable<[string | number, Value]>) {
      this.#steps += 1 / 16;
      const inner = this.#measure(item, depth + 1, changing);
      size += inner.size + (typeof key === 'string' ? key.length : 0);
      fixed &&= inner.fixed;
    }
    if (fixed) {
      this.#sizes.set(value, size);
      this.#made += ELEMENT * (lengthOf(value) + 1);
    } else changing.set(value, size);
    return { size, fixed };
  }
}

type Container = Value & { readonly value: { entries(): unknown } };

function contains(value: Value): value is Container {
  return Array.isArray(value.value) || value.value instanceof Map;
}

function lengthOf({ value }: Value): number {
  return Array.isArray(value) ? value.length : value instanceof Map ? value.size : 0;
}

function argumentSize({ value }: Value, size: number): number {
  return typeof value === 'number' ? Math.abs(value) : size;
}

/** Whether a node is an argument by position, by keyword, or an unpacked one. */
function isArgument(args: readonly Node[] | undefined, node: Node): boolean {
  return args?.some((one) => one === node || one.value === node || one.argument === node) ?? false;
}

function checkProduct(name: unknown, operand: number, argument: number): void {
  const product = name === 'split' ? operand * ELEMENT : MULTIPLIES.has(name) ? operand * argument : 0;
  // `>` would let NaN pass.
  if (!(product <= MAX_PRODUCT))
    tooMuch(`${String(name)} may make ${operand} × ${argument} characters, more than ${MAX_PRODUCT}`);
}

/** Jinja's range, with the limit of its sandbox. */
function range(start: number, stop?: number, step = 1): number[] {
  const [from, to] = stop === undefined ? [0, start] : [start, stop];
  const count = Math.max(0, Math.ceil((to - from) / step));
  // `>` would let NaN pass.
  if (!(count <= MAX_RANGE)) tooMuch(`range() gives ${count} numbers, more than ${MAX_RANGE}`);
  return Array.from({ length: count }, (_number, n) => from + n * step);
}

function raise_exception(message: unknown): never {
  const said = message === undefined ? 'raise_exception() without a message' : String(message);
  const text = JSON.stringify(said.slice(0, 300));
  fail('RANGE', 'chat: messages', `the model's chat template refuses them: ${text}. Change them as the template asks.`);
}

function strftime_now(format: unknown): string {
  if (typeof format !== 'string')
    throw new Error(`strftime_now() takes a format such as "%Y-%m-%d", not ${show(format)}`);
  return new Template('{{ strftime_now(format) }}').render({ format });
}

function mistake(what: string, place: string, said: string, cause: unknown): never {
  // A control character of the file must not reach the terminal.
  const why = said.slice(0, 300).replace(/[\s\p{C}]+/gu, ' ');
  const message = `chat: template: ${what}: ${place === '' ? '' : `${place}: `}${why.replace(/\.$/, '')}`;
  throw new RopewalkError('FORMAT', `${message}. Correct the template, or use another one.`, { cause });
}

/** Parses a template, with blocks trimmed as transformers trims them. */
function parseTemplate(source: string): Node {
  if (source.length > MAX_TEMPLATE) tooMuch(`it has ${source.length} characters, more than ${MAX_TEMPLATE}`);
  for (const [space] of source.matchAll(/\s+/g)) {
    if (space.length > MAX_WHITE_SPACE)
      tooMuch(`it has ${space.length} characters of white space in a row, more than ${MAX_WHITE_SPACE}`);
  }
  try {
    return parse(tokenize(source, TRIMMED));
  } catch (error) {
    if (error instanceof RangeError) return tooMuch('blocks and brackets nest too deeply'); // the stack is full
    const { place, why } = placeOfMistake(source, wordsOf(error));
    return mistake('it is no Jinja template', place, why, error);
  }
}

/** Returns the library's message, if it has one. */
function wordsOf(error: unknown): string {
  if (error instanceof TypeError) return 'this is not Jinja, or a value here is missing or of another type';
  return error instanceof Error ? error.message : String(error);
}

/**
 * Renders a template.
 *
 * @param variables - the names that the template sees besides Jinja's own
 * @throws {RopewalkError} RANGE when it takes too many steps, too long or too much memory, and when it refuses the
 *   messages by raise_exception; FORMAT when it is not Jinja, or fails otherwise
 */
export function renderBounded(source: string, variables: Readonly<Record<string, unknown>>): string {
  const program = parseTemplate(source);
  const environment = new Environment();
  const constants = { true: true, false: false, none: null, True: true, False: false, None: null };
  const names = { ...constants, range, raise_exception, strftime_now, ...variables };
  // In Python, objects and undefined values are iterable.
  environment.tests.set('iterable', ({ type }: Value) => /^(Array|Tuple|String|Object|Undefined)Value$/.test(type));
  const interpreter = new BoundedInterpreter(environment);
  try {
    for (const [name, value] of Object.entries(names)) environment.set(name, value);
    return String(interpreter.run(program).value);
  } catch (error) {
    if (error instanceof RopewalkError) throw error;
    // The stack is full, or a text is longer than the engine allows. A negative count, as in indent(-1), is a plain
    // mistake.
    if (error instanceof RangeError && !/count|repeat/i.test(error.message))
      return tooMuch(`a macro, list or text has no end: ${error.message}`);
    // The library throws `break` and `continue` as errors without a message.
    const said = wordsOf(error) || 'break or continue outside of a loop';
    const place = placeOfNode(source, program, interpreter.at);
    return mistake('it cannot be rendered with these messages', place, said, error);
  }
}
