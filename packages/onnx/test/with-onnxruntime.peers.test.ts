/** Runs the tests of these files that need ONNX Runtime. */
import '../../model-onnx/test/folder.test.js';
import '../../model-onnx/test/genai.test.js';
import './export/angles.test.js';
import './export/emit.test.js';
import './export/rope-model.test.js';
import './import/import.test.js';
