/** Learn. @module */
import '../shell/shell.js';
import { render } from 'preact';

function Learn() {
  return <h1>RoPE explained</h1>;
}

render(<Learn />, document.querySelector('#main')!);
