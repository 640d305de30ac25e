"""A lean HTTP/1.1 client, used towards the object store and by the SDK. Knows nothing of the domain."""
