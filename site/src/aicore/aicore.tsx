/** AiCore. @module */
import '../shell/shell.js';
import { render } from 'preact';

function AiCore() {
  return <h1>The AI Core</h1>;
}

render(<AiCore />, document.querySelector('#main')!);
