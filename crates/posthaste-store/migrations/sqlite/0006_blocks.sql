-- Blocks: notifications that follow each other by id, listed by flow. A list of one tenant or destination reads only the
-- blocks that have some of its flows. An index of notifications by flow would dirty a page for each row of a batch; a block
-- is written once for 2,000 of them.
--
-- A block has every notification whose id is not greater than its `upto`, and greater than the `upto` of the block before it.
-- What is newer than the last block has none yet. The program writes the blocks of the rows from before when it opens the
-- file. To take the step back, drop the table.
create table block (
    upto blob not null primary key,
    -- Each flow of the block, in order: its number in 8 bytes, and in 4 bytes where its ids end.
    flows blob not null,
    -- The ids, those of each flow together, 16 bytes each.
    ids blob not null
) strict, without rowid;
