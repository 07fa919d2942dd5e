/** Home. @module */
import '../shell/shell.js';
import { render } from 'preact';

function Home() {
  return <h1>Ropewalk</h1>;
}

render(<Home />, document.querySelector('#main')!);
