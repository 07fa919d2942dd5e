/**
 * A code editor, CodeMirror in a shadow root: there its styles are adopted style sheets, which the content security
 * policy allows; in the page they would be a `<style>`. @module
 */
import './editor.css';
import { defaultKeymap, history, historyKeymap } from '@codemirror/commands';
import { HighlightStyle, StreamLanguage, syntaxHighlighting } from '@codemirror/language';
import { javascript } from '@codemirror/legacy-modes/mode/javascript';
import { rust } from '@codemirror/legacy-modes/mode/rust';
import { EditorView, keymap, lineNumbers } from '@codemirror/view';
import { tags } from '@lezer/highlight';
import { useEffect, useRef } from 'preact/hooks';

/** The site's colors, which follow the theme. */
const THEME = EditorView.theme({
  '&': { backgroundColor: 'var(--raised)', color: 'var(--text)', fontSize: '0.88rem', maxHeight: '36rem' },
  '&.cm-focused': { outline: '3px solid var(--accent)', outlineOffset: '2px' },
  '.cm-scroller': { fontFamily: 'var(--mono)', lineHeight: '1.5' },
  '.cm-content': { caretColor: 'var(--text)' },
  '.cm-gutters': { backgroundColor: 'var(--sunken)', color: 'var(--muted)', border: '0' },
  '& .cm-selectionBackground, &.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground': {
    background: 'var(--accent-soft)',
  },
  '.cm-cursor': { borderLeftColor: 'var(--text)' },
});

const COLORS = HighlightStyle.define([
  { tag: tags.comment, color: 'var(--muted)' },
  { tag: [tags.keyword, tags.controlKeyword, tags.definitionKeyword], color: 'var(--s3)' },
  { tag: [tags.number, tags.bool, tags.string], color: 'var(--s2)' },
  { tag: [tags.definition(tags.variableName), tags.typeName], color: 'var(--s1)' },
]);

/**
 * An editor, which colors WGSL as Rust: their words are alike. A new `key` gives it another text. The Tab key leaves it,
 * as in every field.
 */
export function Editor(props: {
  readonly label: string;
  readonly language: 'js' | 'wgsl';
  readonly text: string;
  readonly onChange: (text: string) => void;
}) {
  const place = useRef<HTMLDivElement>(null);
  const change = useRef(props.onChange);
  change.current = props.onChange;
  useEffect(() => {
    const root = place.current!.shadowRoot ?? place.current!.attachShadow({ mode: 'open' });
    const view = new EditorView({
      doc: props.text,
      root,
      parent: root,
      extensions: [
        lineNumbers(),
        history(),
        keymap.of([...defaultKeymap, ...historyKeymap]),
        StreamLanguage.define<unknown>(props.language === 'js' ? javascript : rust),
        syntaxHighlighting(COLORS),
        THEME,
        EditorView.contentAttributes.of({ 'aria-label': props.label, tabindex: '0' }),
        EditorView.updateListener.of((update) => {
          if (update.docChanged) change.current(update.state.doc.toString());
        }),
      ],
    });
    return () => view.destroy();
  }, []);
  return <div class="editor" ref={place} />;
}
