import { noGpu } from '../support/gpu.js';
import { mutationsOf } from './mutations-of.js';

mutationsOf('webgpu', noGpu);
