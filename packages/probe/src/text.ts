/** The text that is sent unless another is given, written for this purpose: a story, a list and a sum. @module */

export const TEXT = `The keeper of the light had a habit of counting. He counted the steps of the tower every evening, though he knew that there were one hundred and twelve of them, and he counted the ships that went by, and the days until the boat came with oil and letters. In winter the boat was often late. Then he would sit at the window of the upper room, with a book that he had read before, and listen to the wind.

"You should write to your sister," said the boy, who had come for the season to learn the work. "She asked for news of you, and you have not answered her since the spring."

"There is no news here," said the keeper. "The sea is where it was."

But he took a sheet of paper all the same, and he wrote that the lamp was in order, that the boy was learning well, and that the steps of the tower were one hundred and twelve.

What the boat brings:
1. oil for the lamp, 40 cans
2. flour, salt and tea
3. letters, if there are any
4. rope, 200 feet of it
5. a new book, which the keeper will have read before

If the lamp burns two cans in three nights, then 40 cans last for 60 nights, and the boat must come again before the second month is over. The boy wrote this on the wall beside the door, where the keeper could see it every morning, and under it he wrote the number of the steps.

`;
