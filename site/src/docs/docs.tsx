/** Docs. @module */
import '../shell/shell.js';
import { render } from 'preact';

function Docs() {
  return <h1>Documentation</h1>;
}

render(<Docs />, document.querySelector('#main')!);
