/** Generate. @module */
import '../shell/shell.js';
import { render } from 'preact';

function Generate() {
  return <h1>Run a model</h1>;
}

render(<Generate />, document.querySelector('#main')!);
