/** The page of one known bug. The build draws it, and it needs no script but the shell's. @module */
import './museum.css';
