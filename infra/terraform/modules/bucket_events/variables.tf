variable "bucket" {
  description = "Name of the bucket."
  type        = string
}

variable "queue" {
  description = "Name of the queue of its events; that of the dead letters ends in -dead."
  type        = string
}

variable "cors_origins" {
  description = "Web origins that may use presigned URLs."
  type        = list(string)
  default     = ["*"]
}

variable "kms_key_arn" {
  description = "Key for objects and queues; null: keys of AWS. Who PUTs by a URL needs none: the URL is signed by a role that may use it."
  type        = string
  default     = null
}

variable "visibility_seconds" {
  description = "How long an event is not given again: six times the function's timeout."
  type        = number
  default     = 180
}

variable "tries" {
  description = "How often an event is tried before it is a dead letter."
  type        = number
  default     = 5
}

variable "force_destroy" {
  description = "Whether the bucket may be destroyed with what is in it."
  type        = bool
  default     = false
}

variable "tls_only" {
  description = "Whether requests without TLS are refused. An emulator on this machine has none."
  type        = bool
  default     = true
}
