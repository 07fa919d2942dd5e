/** Bench. @module */
import '../shell/shell.js';
import { render } from 'preact';

function Bench() {
  return <h1>How fast this browser is</h1>;
}

render(<Bench />, document.querySelector('#main')!);
