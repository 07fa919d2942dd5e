/** Museum. @module */
import '../shell/shell.js';
import { render } from 'preact';

function Museum() {
  return <h1>The museum of wrong kernels</h1>;
}

render(<Museum />, document.querySelector('#main')!);
