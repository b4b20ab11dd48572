"""Everything that happened -> rows, and rows -> the schema's nouns again; one file a noun.

`database` opens and migrates, `recorder` writes for the training loop, the other files hold a table and its
queries each. Nothing is imported here, so that `strop.store.home` costs nothing.
"""
