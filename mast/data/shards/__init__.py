"""Sets in shards, tars of WebDataset, anywhere; a training reads them in order.

Reading them needs the extra `shards`.
"""
