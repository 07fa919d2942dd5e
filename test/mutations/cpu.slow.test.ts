import { mutationsOf } from './mutations-of.js';

mutationsOf('cpu');
