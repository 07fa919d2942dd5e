/** Explore. @module */
import '../shell/shell.js';
import { render } from 'preact';

function Explore() {
  return <h1>The RoPE of a model</h1>;
}

render(<Explore />, document.querySelector('#main')!);
