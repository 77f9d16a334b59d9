"""LangGraph on a PolyKV server: a chat model that attaches to pools, and what manages them."""
